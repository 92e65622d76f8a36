package cri

// The verbose info of a status is JSON without a contract. What follows is what
// containerd (1.6 to 2.x) and CRI-O put there; every field may be absent, of
// another type or nonsense, and is then left out alone.

// Annotations CRI-O puts into the OCI spec.
const (
	crioCgroupParent = "io.kubernetes.cri-o.CgroupParent"
	crioImage        = "io.kubernetes.cri-o.Image"
	crioImageName    = "io.kubernetes.cri-o.ImageName"
	crioSandboxID    = "io.kubernetes.cri-o.SandboxID"
	crioResources    = "io.kubernetes.cri-o.PodLinuxResources"
	crioOverhead     = "io.kubernetes.cri-o.PodLinuxOverhead"
)

// ctdSandboxID is containerd's annotation for the sandbox of a container.
const ctdSandboxID = "io.kubernetes.cri.sandbox-id"

// statusConfig is the info "config" of a runtime's status.
type statusConfig struct {
	SandboxImage      string `json:"sandboxImage"`
	ContainerdRootDir string `json:"containerdRootDir"`
	RootDir           string `json:"rootDir"`
	StateDir          string `json:"stateDir"`
}

func decodeStatusConfig(s string) statusConfig {
	var v statusConfig
	decode(s, &v)
	return v
}

// sandboxInfo is the info "info" of a sandbox's status.
type sandboxInfo struct {
	PID    looseInt `json:"pid"`
	Image  string   `json:"image"`
	Config struct { // containerd: the CRI configuration it was made from
		LogDirectory string `json:"log_directory"`
		Linux        struct {
			CgroupParent string       `json:"cgroup_parent"`
			Resources    criResources `json:"resources"`
			Overhead     criResources `json:"overhead"`
		} `json:"linux"`
	} `json:"config"`
	Spec ociSpec `json:"runtimeSpec"`
}

func decodeSandboxInfo(s string) sandboxInfo {
	var v sandboxInfo
	decode(s, &v)
	return v
}

func (in *sandboxInfo) cgroupParent() string {
	return cgroupPath(first(in.Config.Linux.CgroupParent, in.Spec.Annotations[crioCgroupParent]))
}

func (in *sandboxInfo) image() string {
	return first(in.Image, in.Spec.Annotations[crioImage], in.Spec.Annotations[crioImageName])
}

func (in *sandboxInfo) resources() Resources {
	return in.Config.Linux.Resources.resources().or(in.annotated(crioResources))
}

func (in *sandboxInfo) overhead() Resources {
	return in.Config.Linux.Overhead.resources().or(in.annotated(crioOverhead))
}

// annotated reads resources that an annotation holds as JSON.
func (in *sandboxInfo) annotated(key string) Resources {
	var v criResources
	decode(in.Spec.Annotations[key], &v)
	return v.resources()
}

// containerInfo is the info "info" of a container's status.
type containerInfo struct {
	SandboxID string   `json:"sandboxID"`
	PID       looseInt `json:"pid"`
	Spec      ociSpec  `json:"runtimeSpec"`
}

func decodeContainerInfo(s string) containerInfo {
	var v containerInfo
	decode(s, &v)
	return v
}

func (in *containerInfo) sandboxID() string {
	return first(in.SandboxID, in.Spec.Annotations[ctdSandboxID], in.Spec.Annotations[crioSandboxID])
}

// ociSpec is the part of an OCI runtime specification that matters here
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
				Swap  looseInt `json:"swap"`
			} `json:"memory"`
			CPU struct {
				Shares looseInt `json:"shares"`
				Quota  looseInt `json:"quota"`
				Period looseInt `json:"period"`
			} `json:"cpu"`
			Unified map[string]string `json:"unified"`
		} `json:"resources"`
	} `json:"linux"`
}

func (s *ociSpec) resources() Resources {
	r := &s.Linux.Resources
	return Resources{
		MemoryLimit: positive(r.Memory.Limit.value),
		SwapLimit:   positive(r.Memory.Swap.value),
		CPUShares:   positive(r.CPU.Shares.value),
		CPUQuota:    positive(r.CPU.Quota.value),
		CPUPeriod:   positive(r.CPU.Period.value),
		OOMScoreAdj: oomScoreAdj(s.Process.OOMScoreAdj.value, s.Process.OOMScoreAdj.known),
		Unified:     r.Unified,
	}
}

// criResources is the CRI's LinuxContainerResources as encoding/json writes it.
type criResources struct {
	MemoryLimit looseInt          `json:"memory_limit_in_bytes"`
	SwapLimit   looseInt          `json:"memory_swap_limit_in_bytes"`
	CPUShares   looseInt          `json:"cpu_shares"`
	CPUQuota    looseInt          `json:"cpu_quota"`
	CPUPeriod   looseInt          `json:"cpu_period"`
	OOMScoreAdj looseInt          `json:"oom_score_adj"`
	Unified     map[string]string `json:"unified"`
}

func (r *criResources) resources() Resources {
	return Resources{
		MemoryLimit: positive(r.MemoryLimit.value),
		SwapLimit:   positive(r.SwapLimit.value),
		CPUShares:   positive(r.CPUShares.value),
		CPUQuota:    positive(r.CPUQuota.value),
		CPUPeriod:   positive(r.CPUPeriod.value),
		OOMScoreAdj: oomScoreAdj(r.OOMScoreAdj.value, r.OOMScoreAdj.known),
		Unified:     r.Unified,
	}
}
