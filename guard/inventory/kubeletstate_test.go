package inventory

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/lastgood/lastgoodtest"
)

// A pod-level request takes precedence over those of the containers.
func TestParseKubeletState(t *testing.T) {
	const containers = `"ContainerResources":{"a":{"requests":{"cpu":"1","memory":"64Mi"}},"b":{"limits":{"memory":"1Gi"},"requests":{"memory":"32Mi"}}}`
	const none = `"ContainerResources":{"a":{},"b":{}}`
	const mib = 1 << 20
	for name, c := range map[string]struct {
		entry string
		want  resources
	}{
		"of its containers":         {containers, resources{memory: 96 * mib}},
		"its own":                   {none + `,"PodLevelResources":{"limits":{"memory":"2Gi"},"requests":{"cpu":"2","memory":"512Mi"}}`, resources{memory: 512 * mib}},
		"its own beside containers": {containers + `,"PodLevelResources":{"requests":{"memory":"256Mi"}}`, resources{memory: 256 * mib}},
		"its own of CPU alone":      {containers + `,"PodLevelResources":{"requests":{"cpu":"2"}}`, resources{memory: 96 * mib}},
		"a field without a value":   {containers + `,"PodLevelResources":null,"EmptyDirVolumeLimits":null`, resources{memory: 96 * mib}},
		"a field not known":         {containers + `,"EmptyDirVolumeLimits":{"v":"1Gi"}`, resources{memory: 96 * mib}},
		"none":                      {none, resources{}},
		"limits of local storage": {
			`"ContainerResources":{"a":{"requests":{"ephemeral-storage":"1Mi"},"limits":{"ephemeral-storage":"2Mi"}}}`, resources{storage: mib},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(map[string]any{"data": `{"entries":{"uid":{` + c.entry + `}}}`, "checksum": 1})
			if err != nil {
				t.Fatal(err)
			}
			pods, err := parseKubeletState(strings.NewReader(string(data)))
			pod := pods["uid"]
			if got := pod.requests(nil); err != nil || len(pods) != 1 || got != c.want {
				t.Errorf("%+v, %v; want %+v", pods, err, c.want)
			}
		})
	}
}

// While the disk hangs, read returns the last value that was read from the kubelet's file.
func TestKubeletStateThatHangs(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, KubeletStateFile)
	k := newKubeletState(func() string { return root })
	k.wait = time.Minute
	state := `{"data":"{\"entries\":{\"uid\":{\"ContainerResources\":{\"a\":{\"requests\":{\"memory\":\"7\"}}}}}}"}`
	if err := os.WriteFile(path, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() string { return fmt.Sprint(k.read(t.Context())["uid"].containers["a"].memory) }
	if got := read(); got != "7" {
		t.Fatalf("read %s", got)
	}
	lastgoodtest.Stall(t, path)
	k.wait = time.Millisecond
	for range 2 {
		if got := read(); got != "7" {
			t.Errorf("while the disk stalls: %s", got)
		}
	}
}

// A pod's request is that of its containers together, or that of an init container and the sidecars beside it.
func TestRequests(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	a := allocated{containers: map[string]resources{"proxy": {memory: 20}, "setup": {memory: 30, storage: 9}, "main": {memory: 60, storage: 5}}}
	large := allocated{containers: map[string]resources{"proxy": {memory: 20}, "setup": {memory: 300}, "main": {memory: 60}}}
	all := map[string]container{"proxy": {created: at(1)}, "setup": {at(2), true}, "main": {created: at(3)}}
	late := map[string]container{"setup": {at(1), true}, "proxy": {created: at(2)}, "main": {created: at(3)}}
	removed := map[string]container{"proxy": {created: at(1)}, "main": {created: at(3)}}
	for _, c := range []struct {
		name string
		of   *allocated
		seen map[string]container
		want resources
	}{
		{"the containers", &a, all, resources{80, 9}},
		{"an init container and the sidecar before it", &large, all, resources{320, 0}},
		{"an init container, and a sidecar after it", &large, late, resources{300, 0}},
		{"an init container that is not listed any more", &large, removed, resources{300, 0}},
		{"no container seen yet", &a, nil, resources{110, 14}},
	} {
		if got := c.of.requests(c.seen); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
