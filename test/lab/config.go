package lab

import (
	"fmt"
	"strings"
)

// config holds the settings of a private containerd's config file.
type config struct {
	root, state, socket string
	scratch             string // replaces directories that containerd would create or read on the system
	snapshotter         string
}

// toml writes the config file for the given major version of containerd
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
//
// It restricts oom_score_adj because lowering it needs CAP_SYS_RESOURCE, which a container that
// runs the tests may lack.
func (c config) toml(major int) string {
	var b strings.Builder
	set := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	set("version = %d", 1+major)
	set("root = %q", c.root)
	set("state = %q", c.state)
	set("imports = []")
	set("[grpc]")
	set("address = %q", c.socket)
	set("[plugins.%q]", "io.containerd.internal.v1.opt")
	set("path = %q", c.scratch+"/opt")
	runtime := `plugins."io.containerd.cri.v1.runtime"`
	if major == 1 {
		runtime = `plugins."io.containerd.grpc.v1.cri"`
	} else {
		set("[plugins.%q]", "io.containerd.nri.v1.nri")
		set("disable = true")
		set("[plugins.%q]", "io.containerd.cri.v1.images")
		set("snapshotter = %q", c.snapshotter)
		set("[plugins.%q.pinned_images]", "io.containerd.cri.v1.images")
		set("sandbox = %q", PauseImage)
	}
	set("[%s]", runtime)
	set("disable_apparmor = true")
	set("restrict_oom_score_adj = true")
	if major == 1 {
		set("sandbox_image = %q", PauseImage)
	}
	set("[%s.cni]", runtime)
	if major == 1 {
		set("bin_dir = %q", c.scratch+"/cni/bin")
	} else {
		set("bin_dirs = [%q]", c.scratch+"/cni/bin")
	}
	set("conf_dir = %q", c.scratch+"/cni/net.d")
	if major == 1 {
		set("[%s.containerd]", runtime)
		set("snapshotter = %q", c.snapshotter)
	}
	set("[%s.containerd.runtimes.runc]", runtime)
	set("runtime_type = %q", "io.containerd.runc.v2")
	set("[%s.containerd.runtimes.runc.options]", runtime)
	set("SystemdCgroup = false")
	set("Root = %q", c.state+"/runc")
	return b.String()
}
