package cri

// The verbose info of a status is JSON without a contract. These types describe the info of containerd
// (1.6 to 2.x) and CRI-O. Every field may be absent, of another type or nonsense; that field alone is
// then dropped.

// Annotations that CRI-O adds to the OCI spec.
const (
	crioCgroupParent = "io.kubernetes.cri-o.CgroupParent"
	crioImage        = "io.kubernetes.cri-o.Image"
	crioImageName    = "io.kubernetes.cri-o.ImageName"
	crioSandboxID    = "io.kubernetes.cri-o.SandboxID"
)

// ctdSandboxID is containerd's annotation for a container's sandbox.
const ctdSandboxID = "io.kubernetes.cri.sandbox-id"

// statusConfig is the "config" info of a runtime's status.
type statusConfig struct {
	SandboxImage string `json:"sandboxImage"`
}

// sandboxInfo is the "info" info of a sandbox's status.
type sandboxInfo struct {
	Image  string   `json:"image"`
	Config struct { // containerd: the CRI configuration it was created from
		Linux struct {
			CgroupParent string `json:"cgroup_parent"`
		} `json:"linux"`
	} `json:"config"`
	Spec ociSpec `json:"runtimeSpec"`
}

func (in *sandboxInfo) cgroupParent() string {
	return cgroupPath(first(in.Config.Linux.CgroupParent, in.Spec.Annotations[crioCgroupParent]))
}

func (in *sandboxInfo) image() string {
	return first(in.Image, in.Spec.Annotations[crioImage], in.Spec.Annotations[crioImageName])
}

// containerInfo is the "info" info of a container's status.
type containerInfo struct {
	SandboxID string   `json:"sandboxID"`
	PID       looseInt `json:"pid"`
	Spec      ociSpec  `json:"runtimeSpec"`
}

func (in *containerInfo) sandboxID() string {
	return first(in.SandboxID, in.Spec.Annotations[ctdSandboxID], in.Spec.Annotations[crioSandboxID])
}

// ociSpec is the part of an OCI runtime specification that the client reads
// (github.com/opencontainers/runtime-spec, config.md and config-linux.md).
type ociSpec struct {
	Process struct {
		OOMScoreAdj looseInt `json:"oomScoreAdj"`
	} `json:"process"`
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		CgroupsPath string `json:"cgroupsPath"`
		Resources   struct {
			Memory struct {
				Limit looseInt `json:"limit"`
			} `json:"memory"`
			CPU struct {
				Shares looseInt `json:"shares"`
				Quota  looseInt `json:"quota"`
			} `json:"cpu"`
		} `json:"resources"`
	} `json:"linux"`
}

func (s *ociSpec) resources() Resources {
	r := &s.Linux.Resources
	return Resources{
		MemoryLimit: positive(r.Memory.Limit.value),
		CPUShares:   positive(r.CPU.Shares.value),
		CPUQuota:    positive(r.CPU.Quota.value),
		OOMScoreAdj: oomScoreAdj(s.Process.OOMScoreAdj.value, s.Process.OOMScoreAdj.known),
	}
}
