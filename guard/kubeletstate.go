package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/criguard/criguard/policy"
)

// kubeletStateFile is where a kubelet (1.33 and later) keeps what it allocated to
// each pod. Its format is the kubelet's own: whatever does not read as expected
// is absent.
const kubeletStateFile = "allocated_pods_state"

// maxKubeletState bounds what is read of it.
const maxKubeletState = 8 << 20

// allocated is what a kubelet allocated to one pod, in bytes.
type allocated struct {
	Memory, Storage int64 // requests, the pod's own or all containers together
}

// kubeletState caches the file until it changes.
type kubeletState struct {
	path    string
	wait    time.Duration // for the file
	reading aside[map[string]allocated]

	// For load alone.
	mtime time.Time
	pods  map[string]allocated
}

func newKubeletState(rootDir string) *kubeletState {
	return &kubeletState{path: filepath.Join(rootDir, kubeletStateFile), wait: fileWait}
}

// read returns what is allocated to each pod by its UID; nil without a kubelet. The file is on
// the disk that may be what stalls: what it said last will do then.
func (k *kubeletState) read(ctx context.Context) map[string]allocated {
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	return k.reading.get(ctx, k.load)
}

func (k *kubeletState) load() map[string]allocated {
	st, err := os.Stat(k.path)
	if err != nil {
		k.pods, k.mtime = nil, time.Time{}
		return nil
	}
	if st.ModTime().Equal(k.mtime) {
		return k.pods
	}
	f, err := os.Open(k.path)
	if err != nil {
		return k.pods
	}
	defer func() { _ = f.Close() }()
	// The kubelet writes a new file and renames it; a file that does not parse is
	// one of another release.
	if pods, err := parseKubeletState(io.LimitReader(f, maxKubeletState)); err == nil {
		k.pods = pods
	} else {
		k.pods = nil
	}
	k.mtime = st.ModTime()
	return k.pods
}

// parseKubeletState reads {"data": "<json>"} with, in it, entries by pod UID and
// container name. A pod with resources of its own (1.34) may have none in its containers;
// newer kubelets have the pod's own in its entry, others leave them out.
func parseKubeletState(r io.Reader) (map[string]allocated, error) {
	var outer struct {
		Data string `json:"data"`
	}
	if err := json.NewDecoder(r).Decode(&outer); err != nil {
		return nil, fmt.Errorf("read kubelet state: %w", err)
	}
	type resources struct {
		Requests map[string]string `json:"requests"`
	}
	var inner struct {
		Entries map[string]struct {
			ContainerResources map[string]resources
			PodLevelResources  resources
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(outer.Data), &inner); err != nil {
		return nil, fmt.Errorf("read kubelet state: %w", err)
	}
	pods := make(map[string]allocated, len(inner.Entries))
	for uid, e := range inner.Entries {
		var a allocated
		for _, c := range e.ContainerResources {
			m, _ := parseAmount(c.Requests["memory"])
			s, _ := parseAmount(c.Requests["ephemeral-storage"])
			a.Memory, a.Storage = a.Memory+m, a.Storage+s
		}
		if m, ok := parseAmount(e.PodLevelResources.Requests["memory"]); ok {
			a.Memory = m // it holds for all containers, whatever each asks for
		}
		pods[uid] = a
	}
	return pods, nil
}

// parseAmount reads an amount of bytes in the kubelet's syntax; false when there
// is none, or none that makes sense.
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
