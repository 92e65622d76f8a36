package cluster

import (
	"fmt"
	"slices"

	"github.com/criguard/criguard/policy"
)

// Pod is the part of the API's Pod that the tests use.
type Pod struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   Metadata  `json:"metadata"`
	Spec       PodSpec   `json:"spec"`
	Status     PodStatus `json:"status,omitzero"`
}

// Workload returns a pod with one container, which has a volume at /ctl.
func Workload(name string, resources Resources, args ...string) Pod {
	return Pod{
		Metadata: Metadata{Name: name},
		Spec: PodSpec{
			Containers: []Container{{
				Name: "main", Args: args, Resources: resources, VolumeMounts: []VolumeMount{{Name: "ctl", MountPath: "/ctl"}},
			}},
			Volumes: []Volume{{Name: "ctl", EmptyDir: &struct{}{}}},
		},
	}
}

// Runs reports whether all containers of the pod run.
func (p Pod) Runs() bool {
	return p.Status.Phase == "Running" && len(p.Status.ContainerStatuses) == len(p.Spec.Containers) &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c ContainerStatus) bool { return c.State.Running == nil })
}

// Restarts returns how often the kubelet has restarted the pod's containers.
func (p Pod) Restarts() (sum int) {
	for _, c := range p.Status.ContainerStatuses {
		sum += c.RestartCount
	}
	return sum
}

// MemoryRequest returns the sum of the memory requests of the pod's containers and sidecars, in bytes. Init
// containers that end do not count.
func (p Pod) MemoryRequest() (sum int64, err error) {
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy == "Always" {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		amount, ok := c.Resources.Requests["memory"]
		if !ok {
			continue
		}
		q, err := policy.ParseQuantity(amount)
		if err != nil {
			return 0, fmt.Errorf("read memory request of %s: %w", p.Metadata.Name, err)
		}
		sum += q.Of(0)
	}
	return sum, nil
}

// Metadata identifies an object.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"`

	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodSpec describes a pod. The cluster fills in its node, its network and its images.
type PodSpec struct {
	NodeName                     string      `json:"nodeName,omitempty"`
	HostNetwork                  bool        `json:"hostNetwork"`
	AutomountServiceAccountToken *bool       `json:"automountServiceAccountToken"`
	RestartPolicy                string      `json:"restartPolicy,omitempty"`
	PriorityClassName            string      `json:"priorityClassName,omitempty"`
	Priority                     int64       `json:"priority,omitempty"` // from the class; read only
	InitContainers               []Container `json:"initContainers,omitempty"`
	Containers                   []Container `json:"containers"`
	Volumes                      []Volume    `json:"volumes,omitempty"`
}

// Container describes a container.
type Container struct {
	Name            string        `json:"name"`
	Image           string        `json:"image"`
	ImagePullPolicy string        `json:"imagePullPolicy"`
	Args            []string      `json:"args"`                    // for the image's program, see test/lab/workload
	RestartPolicy   string        `json:"restartPolicy,omitempty"` // Always makes an init container a sidecar
	Resources       Resources     `json:"resources,omitzero"`
	VolumeMounts    []VolumeMount `json:"volumeMounts,omitempty"`
}

// Resources are a container's requests and limits, by resource.
type Resources struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

// Volume is a volume of a pod. Exactly one of its sources is set.
type Volume struct {
	Name     string    `json:"name"`
	EmptyDir *struct{} `json:"emptyDir,omitempty"`
	HostPath *HostPath `json:"hostPath,omitempty"`
}

// HostPath is a directory of the node.
type HostPath struct {
	Path string `json:"path"`
}

// VolumeMount is the place of a volume in a container.
type VolumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

// PodStatus is a pod's state as the kubelet reports it.
type PodStatus struct {
	Phase             string            `json:"phase"`
	Reason            string            `json:"reason"`
	QOSClass          string            `json:"qosClass"`
	ContainerStatuses []ContainerStatus `json:"containerStatuses"`
}

// ContainerStatus is a container's state.
type ContainerStatus struct {
	ContainerID  string         `json:"containerID"`
	RestartCount int            `json:"restartCount"`
	Resources    Resources      `json:"resources"` // in force
	State        ContainerState `json:"state"`
	LastState    ContainerState `json:"lastState"`
}

// ContainerState is the state of one run of a container. At most one field is set.
type ContainerState struct {
	Running    *struct{}   `json:"running"`
	Terminated *Terminated `json:"terminated"`
}

// Terminated describes how a container ended.
type Terminated struct {
	ExitCode    int    `json:"exitCode"`
	Reason      string `json:"reason"`
	ContainerID string `json:"containerID"`
}

// Killed reports whether the container was killed, as the kubelet reports it after a stop.
func (s ContainerState) Killed() bool {
	return s.Terminated != nil && s.Terminated.ExitCode == 137 && s.Terminated.Reason == "Error"
}

// Event is the part of the API's Event that the tests use.
type Event struct {
	Reason, Message string
	Source          struct{ Component, Host string }
	InvolvedObject  Metadata
}

// Summary is the part of the kubelet's statistics that the tests use, in bytes and in numbers
// (https://kubernetes.io/docs/reference/instrumentation/node-metrics/).
type Summary struct {
	Node struct {
		Memory struct{ AvailableBytes, WorkingSetBytes int64 }
		FS     FSStats
		Swap   struct{ SwapAvailableBytes int64 }
		Rlimit struct{ MaxPID, CurProc int64 }

		Runtime struct{ ImageFS, ContainerFS FSStats }
	}
}

// FSStats describes a filesystem.
type FSStats struct{ AvailableBytes, CapacityBytes, InodesFree, Inodes int64 }

// NodeStatus is the node's state as the kubelet reports it.
type NodeStatus struct {
	Conditions []Condition `json:"conditions"`
}

// Condition is a condition of the node.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"` // True, False or Unknown
	Message string `json:"message"`
}

// Condition returns the condition of a type. Its status is empty if the node does not have it.
func (n NodeStatus) Condition(name string) Condition {
	for _, c := range n.Conditions {
		if c.Type == name {
			return c
		}
	}
	return Condition{}
}
