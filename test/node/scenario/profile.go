package scenario

// Profile is a kind of node.
type Profile struct {
	Name       string
	Cgroup     int // 1 or 2
	Containerd int // 1 (Debian's 1.6) or 2
	Systemd    bool
	Kubernetes bool // a kubelet starts the pods, and etcd and an API server run beside it
	MemoryMiB  int
}

// Runtime names the runtime and its cgroup driver.
func (p Profile) Runtime() string {
	name := "containerd 1.6"
	if p.Containerd == 2 {
		name = "containerd 2"
	}
	if p.Systemd {
		name += ", systemd"
	} else {
		name += ", cgroupfs"
	}
	if p.Kubernetes {
		name += ", kubelet"
	}
	return name
}

// controlPlaneMiB is the memory for the kubelet, etcd and the API server, whose processes take about 400 MiB.
const controlPlaneMiB = 640

// The available profiles.
var (
	V2      = Profile{Name: "v2", Cgroup: 2, Containerd: 1, MemoryMiB: 1024}
	V1      = Profile{Name: "v1", Cgroup: 1, Containerd: 1, MemoryMiB: 1024}
	V2Small = Profile{Name: "v2-small", Cgroup: 2, Containerd: 1, MemoryMiB: 512}
	V1Small = Profile{Name: "v1-small", Cgroup: 1, Containerd: 1, MemoryMiB: 512}
	V2New   = Profile{Name: "v2-new", Cgroup: 2, Containerd: 2, Systemd: true, MemoryMiB: 1024}
	V2Kube  = Profile{Name: "v2-kube", Cgroup: 2, Containerd: 2, Systemd: true, Kubernetes: true, MemoryMiB: 1024 + controlPlaneMiB}
	V1New   = Profile{Name: "v1-new", Cgroup: 1, Containerd: 2, Systemd: true, MemoryMiB: 1024}
)
