package inventory

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// Pod is a running sandbox as criguard sees it.
type Pod struct {
	// Candidate carries identity, QoS class, priority, request and protection. Its usage is filled in only
	// when needed.
	policy.Candidate

	Labels         map[string]string
	Annotations    map[string]string
	Static         bool          // from a file or URL on the node, not from the API server
	Critical       bool          // static, mirror or system-critical
	Grace          time.Duration // the pod's own termination grace period
	StorageLimit   int64         // bytes of ephemeral storage; 0 = none
	RequestSource  string        // source of the memory request
	PrioritySource string        // source of the priority
	OwnPriority    *int64        // priority before any rule; nil = unknown
	Cgroup         string        // relative to the hierarchy; "" = unknown
	Containers     []Container
	// IdleCgroup is the pod's cgroup while no container is listed: files in memory stay charged to it. "" = unknown, or there are containers.
	IdleCgroup string
	// SandboxCgroup is the cgroup of the sandbox's processes, if these run the containers; "" = they do not.
	SandboxCgroup string

	parent string // the cgroup in which the runtime puts the containers; "" = unknown
	// EndedImages are the image names of exited containers. They include the init containers, which a pod
	// needs first when it is started again, and image volumes of containers that were listed before they exited.
	EndedImages []string
	// Ended are the IDs of the exited containers that the sandbox still has, without those that a newer attempt has replaced.
	Ended []string
}

// Container is a container that has not exited.
type Container struct {
	ID      string
	Name    string
	Cgroup  string // the leaf, relative to the hierarchy; "" = unknown
	LogPath string
	Images  []string // every name that the runtime reports for its image and its image volumes; may contain ""
	Running bool
}

// FullName returns namespace/name.
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// LogDirName returns the name of the directory where a kubelet keeps the pod's logs.
func (p *Pod) LogDirName() string { return p.Namespace + "_" + p.Name + "_" + p.UID }

// Inventory is the list of running pods, with the time and error of the last listing.
type Inventory struct {
	Pods []Pod
	At   time.Duration // time of the listing, since boot; negative = never listed
	Err  error         // error of the last listing; nil if it succeeded
}

// Age returns how long ago the pods were listed, to the millisecond, nil if never.
func (inv *Inventory) Age(now time.Duration) *time.Duration {
	if inv.At < 0 {
		return nil
	}
	return new((now - inv.At).Round(time.Millisecond))
}

// Candidates returns the part of the pods that ranking needs.
func Candidates(pods []Pod) []policy.Candidate {
	cs := make([]policy.Candidate, len(pods))
	for i := range pods {
		cs[i] = pods[i].Candidate
	}
	return cs
}

// ByID returns the pod with this sandbox ID, or nil.
func ByID(pods []Pod, id string) *Pod {
	for i := range pods {
		if pods[i].ID == id {
			return &pods[i]
		}
	}
	return nil
}
