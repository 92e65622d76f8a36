package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// Pod is one sandbox that runs, as the guard knows it.
type Pod struct {
	// Candidate carries identity, class, priority, request and protection. Its
	// usage is filled in when it is needed.
	policy.Candidate

	Labels         map[string]string
	Annotations    map[string]string
	Attempt        uint32
	Static         bool          // from a file or URL of the node, not from the API
	Critical       bool          // static, mirror or system-critical
	Grace          time.Duration // the pod's own termination grace period
	StorageLimit   int64         // bytes of ephemeral storage; 0 = none
	RequestSource  string        // where the memory request comes from
	PrioritySource string        // where the priority comes from
	OwnPriority    *int64        // what it is known by, before any rule; nil = nothing is known
	Cgroup         string        // relative to the hierarchy; "" = not known
	Containers     []PodContainer
	// EndedImages are the names of the images of containers that have ended: the init
	// containers, which a pod that comes back needs first.
	EndedImages []string
}

// PodContainer is a container of a pod that has not ended.
type PodContainer struct {
	ID      string
	Name    string
	Cgroup  string // the leaf, relative to the hierarchy; "" = not known
	LogPath string
	Images  []string // every name of its image that the runtime tells; "" among them is none
	Running bool
}

// FullName is namespace/name.
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// Inventory is the pods that run and how old that knowledge is.
type Inventory struct {
	Pods []Pod
	At   time.Duration // when it was listed, since boot; negative = never
	Err  error         // why the last listing did not work; nil when it did
}

// candidates copies what rank needs out of the pods.
func candidates(pods []Pod) []policy.Candidate {
	cs := make([]policy.Candidate, len(pods))
	for i := range pods {
		cs[i] = pods[i].Candidate
	}
	return cs
}

// podByID finds the pod of a sandbox.
func podByID(pods []Pod, id string) *Pod {
	for i := range pods {
		if pods[i].ID == id {
			return &pods[i]
		}
	}
	return nil
}
