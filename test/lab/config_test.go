package lab

import (
	"reflect"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestConfig(t *testing.T) {
	c := config{root: "/r", state: "/s", socket: "/c.sock", scratch: "/x", snapshotter: "native"}
	type table = map[string]any
	runc := table{"runc": table{
		"runtime_type": "io.containerd.runc.v2",
		"options":      table{"SystemdCgroup": false, "Root": "/s/runc"},
	}}
	for major, plugins := range map[int]table{
		1: {
			"io.containerd.internal.v1.opt": table{"path": "/x/opt"},
			"io.containerd.grpc.v1.cri": table{
				"disable_apparmor": true, "restrict_oom_score_adj": true, "sandbox_image": PauseImage,
				"cni":        table{"bin_dir": "/x/cni/bin", "conf_dir": "/x/cni/net.d"},
				"containerd": table{"snapshotter": "native", "runtimes": runc},
			},
		},
		2: {
			"io.containerd.internal.v1.opt": table{"path": "/x/opt"},
			"io.containerd.nri.v1.nri":      table{"disable": true},
			"io.containerd.cri.v1.images":   table{"snapshotter": "native", "pinned_images": table{"sandbox": PauseImage}},
			"io.containerd.cri.v1.runtime": table{
				"disable_apparmor": true, "restrict_oom_score_adj": true,
				"cni":        table{"bin_dirs": []any{"/x/cni/bin"}, "conf_dir": "/x/cni/net.d"},
				"containerd": table{"runtimes": runc},
			},
		},
	} {
		want := table{
			"version": int64(1 + major), "root": "/r", "state": "/s", "imports": []any{},
			"grpc": table{"address": "/c.sock"}, "plugins": plugins,
		}
		var got table
		if _, err := toml.Decode(c.toml(major), &got); err != nil {
			t.Errorf("containerd %d: %v\n%s", major, err, c.toml(major))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("containerd %d: got %v\nwant %v", major, got, want)
		}
	}
}
