package mounts

import (
	"slices"
	"strings"
	"testing"
)

// Each mount that is missing gets one warning, which names it. What the node may not have gets none.
func TestMissingMounts(t *testing.T) {
	gone, there := sight{Expected: true}, sight{Expected: true, Seen: true}
	for name, c := range map[string]struct {
		seen view
		want string // in the only warning; "" = none
	}{
		"nothing known":          {view{}, ""},
		"everything there":       {view{Runtime: there, Cgroups: there, Processes: there, PodDirs: there, LogDirs: there, Images: there}, ""},
		"unexpected, but seen":   {view{Images: sight{Seen: true}}, ""},
		"no runtime's directory": {view{RuntimeDirs: "/run/a, /run/b", Runtime: gone}, "no directory of a runtime's socket exists: /run/a, /run/b"},
		"read-only cgroups":      {view{CgroupRoot: "/sys/fs/cgroup", CgroupReadOnly: true}, "/sys/fs/cgroup is read-only"},
		"other cgroups":          {view{CgroupRoot: "/sys/fs/cgroup", Cgroups: gone}, "the pods' cgroups are not in /sys/fs/cgroup"},
		"other processes":        {view{Processes: gone}, "set hostPID: true"},
		"another kubelet's root": {view{KubeletRoot: "/var/lib/kubelet", PodDirs: gone}, "in /var/lib/kubelet/pods"},
		"no logs":                {view{PodLogs: "/var/log/pods", LogDirs: gone}, "in /var/log/pods"},
		"no images":              {view{ImageDir: "/var/lib/containerd", Images: gone}, "/var/lib/containerd, where the runtime keeps its images"},
	} {
		got := c.seen.missing()
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want) || strings.Contains(got[0], "\n")) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// One of a kind is enough: a pod that has just ended proves nothing.
func TestSight(t *testing.T) {
	var s sight
	for i, seen := range []bool{false, true, false} {
		if s.look(func() bool { return seen }); s.missing() != (i == 0) {
			t.Errorf("after %d: %+v", i+1, s)
		}
	}
}

func TestSocketDirs(t *testing.T) {
	if got := socketDirs("unix:///run/x/y.sock"); !slices.Equal(got, []string{"/run/x"}) {
		t.Errorf("configured: %q", got)
	}
	if got := socketDirs(""); !slices.Contains(got, "/run/containerd") || !slices.Contains(got, "/run/crio") || slices.Contains(got, "/run") {
		t.Errorf("searched: %q", got)
	}
}
