package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/policy"
)

// KubeletStateFile is the file in which a kubelet (1.33 and later) stores the resources that it allocated to
// each pod. The format is internal to the kubelet: anything that does not parse as expected is treated as
// absent.
const KubeletStateFile = "allocated_pods_state"

// maxKubeletState limits how many bytes of the file are read.
const maxKubeletState = 8 << 20

// allocated holds the resources that a kubelet allocated to one pod.
type allocated struct {
	podMemory  int64                // pod-level request, which replaces that of the containers; 0 = none
	containers map[string]resources // by name, init containers included
}

// resources are a container's requests in bytes.
type resources struct{ memory, storage int64 }

// container is how far a container of a pod has come, in its newest attempt.
type container struct {
	created time.Time
	isInit  bool // an init container that has ended
}

// requests returns the pod's requests as the kubelet reckons them (resourcehelper.PodRequests): those of its
// containers together or, if that is more, those of an init container and the sidecars that ran beside it. The
// state does not say which are init containers: seen has the others, and those that have ended. One that the
// runtime does not list any more is an init container, too, because the kubelet keeps the newest attempt of
// the others.
func (a *allocated) requests(seen map[string]container) (r resources) {
	for name, own := range a.containers {
		c, ok := seen[name]
		if len(seen) == 0 || ok && !c.isInit {
			r.memory, r.storage = r.memory+own.memory, r.storage+own.storage
		}
	}
	for name, own := range a.containers {
		c, ok := seen[name]
		if len(seen) == 0 || ok && !c.isInit {
			continue
		}
		for other, beside := range a.containers {
			if o, ok := seen[other]; ok && !o.isInit && o.created.Before(c.created) {
				own.memory, own.storage = own.memory+beside.memory, own.storage+beside.storage
			}
		}
		r.memory, r.storage = max(r.memory, own.memory), max(r.storage, own.storage)
	}
	if a.podMemory > 0 {
		r.memory = a.podMemory
	}
	return r
}

// kubeletState caches the parsed file until its modification time changes.
type kubeletState struct {
	root    func() string
	wait    time.Duration // for the file
	reading lastgood.Value[map[string]allocated]

	// Used only by load.
	mtime time.Time
	pods  map[string]allocated
}

func newKubeletState(root func() string) *kubeletState {
	return &kubeletState{root: root, wait: lastgood.FileTimeout}
}

// read returns the allocated resources by pod UID; nil without a kubelet. The file may be on a disk that
// hangs: read then returns the last good value.
func (k *kubeletState) read(ctx context.Context) map[string]allocated {
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	return k.reading.Get(ctx, k.load)
}

func (k *kubeletState) load() map[string]allocated {
	path := filepath.Join(k.root(), KubeletStateFile)
	st, err := os.Stat(path)
	if err != nil {
		k.pods, k.mtime = nil, time.Time{}
		return nil
	}
	if st.ModTime().Equal(k.mtime) {
		return k.pods
	}
	f, err := os.Open(path)
	if err != nil {
		return k.pods
	}
	defer func() { _ = f.Close() }()
	// The kubelet replaces the file with a rename, so a file that does not parse comes from another release,
	// not from a partial write.
	if pods, err := parseKubeletState(io.LimitReader(f, maxKubeletState)); err == nil {
		k.pods = pods
	} else {
		k.pods = nil
	}
	k.mtime = st.ModTime()
	return k.pods
}

// parseKubeletState parses {"data": "<json>"}, whose inner JSON has entries by pod UID and container name. A
// pod with pod-level resources (1.34) may have none in its containers. Newer kubelets include the pod-level
// resources in the pod's entry; older ones omit them.
func parseKubeletState(r io.Reader) (map[string]allocated, error) {
	var outer struct {
		Data string `json:"data"`
	}
	if err := json.NewDecoder(r).Decode(&outer); err != nil {
		return nil, fmt.Errorf("read kubelet state: %w", err)
	}
	type requests struct {
		Requests map[string]string `json:"requests"`
	}
	var inner struct {
		Entries map[string]struct {
			ContainerResources map[string]requests
			PodLevelResources  requests
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(outer.Data), &inner); err != nil {
		return nil, fmt.Errorf("read kubelet state: %w", err)
	}
	pods := make(map[string]allocated, len(inner.Entries))
	for uid, e := range inner.Entries {
		a := allocated{containers: make(map[string]resources, len(e.ContainerResources))}
		for name, c := range e.ContainerResources {
			memory, _ := parseAmount(c.Requests["memory"])
			storage, _ := parseAmount(c.Requests["ephemeral-storage"])
			a.containers[name] = resources{memory, storage}
		}
		a.podMemory, _ = parseAmount(e.PodLevelResources.Requests["memory"])
		pods[uid] = a
	}
	return pods, nil
}

// parseAmount parses a number of bytes in the kubelet's syntax; false if it is empty, invalid or a
// percentage.
func parseAmount(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	if s == "0" {
		return 0, true
	}
	q, err := policy.ParseQuantity(s)
	if err != nil || q.IsPercent() {
		return 0, false
	}
	return q.Of(0), true
}
