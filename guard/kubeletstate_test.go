package guard

import (
	"encoding/json"
	"strings"
	"testing"
)

// The request of a pod is its own where it has one, and its containers' together otherwise.
func TestParseKubeletState(t *testing.T) {
	const containers = `"ContainerResources":{"a":{"requests":{"cpu":"1","memory":"64Mi"}},"b":{"limits":{"memory":"1Gi"},"requests":{"memory":"32Mi"}}}`
	const none = `"ContainerResources":{"a":{},"b":{}}`
	const mib = 1 << 20
	for name, c := range map[string]struct {
		entry string
		want  allocated
	}{
		"of its containers":         {containers, allocated{Memory: 96 * mib}},
		"its own":                   {none + `,"PodLevelResources":{"limits":{"memory":"2Gi"},"requests":{"cpu":"2","memory":"512Mi"}}`, allocated{Memory: 512 * mib}},
		"its own beside containers": {containers + `,"PodLevelResources":{"requests":{"memory":"256Mi"}}`, allocated{Memory: 256 * mib}},
		"its own of CPU alone":      {containers + `,"PodLevelResources":{"requests":{"cpu":"2"}}`, allocated{Memory: 96 * mib}},
		"a field without a value":   {containers + `,"PodLevelResources":null,"EmptyDirVolumeLimits":null`, allocated{Memory: 96 * mib}},
		"a field not known":         {containers + `,"EmptyDirVolumeLimits":{"v":"1Gi"}`, allocated{Memory: 96 * mib}},
		"none":                      {none, allocated{}},
		"limits of local storage": {
			`"ContainerResources":{"a":{"requests":{"ephemeral-storage":"1Mi"},"limits":{"ephemeral-storage":"2Mi"}}}`, allocated{Storage: mib},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(map[string]any{"data": `{"entries":{"uid":{` + c.entry + `}}}`, "checksum": 1})
			if err != nil {
				t.Fatal(err)
			}
			pods, err := parseKubeletState(strings.NewReader(string(data)))
			if got := pods["uid"]; err != nil || len(pods) != 1 || got != c.want {
				t.Errorf("%+v, %v; want %+v", pods, err, c.want)
			}
		})
	}
}
