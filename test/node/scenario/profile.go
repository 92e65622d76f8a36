package scenario

// Profile is a kind of node.
type Profile struct {
	Name       string
	Cgroup     int // 1 or 2
	Containerd int // 1 (Debian's 1.6) or 2
	Systemd    bool
	MemoryMiB  int
}

// Runtime names the runtime and its cgroup driver.
func (p Profile) Runtime() string {
	name := "containerd 1.6"
	if p.Containerd == 2 {
		name = "containerd 2"
	}
	if p.Systemd {
		return name + ", systemd"
	}
	return name + ", cgroupfs"
}

// The nodes there are.
var (
	V2      = Profile{Name: "v2", Cgroup: 2, Containerd: 1, MemoryMiB: 1024}
	V1      = Profile{Name: "v1", Cgroup: 1, Containerd: 1, MemoryMiB: 1024}
	V2Small = Profile{Name: "v2-small", Cgroup: 2, Containerd: 1, MemoryMiB: 512}
	V1Small = Profile{Name: "v1-small", Cgroup: 1, Containerd: 1, MemoryMiB: 512}
	V2New   = Profile{Name: "v2-new", Cgroup: 2, Containerd: 2, Systemd: true, MemoryMiB: 1024}
	V1New   = Profile{Name: "v1-new", Cgroup: 1, Containerd: 2, Systemd: true, MemoryMiB: 1024}
)
