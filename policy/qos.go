package policy

import (
	"slices"
	"strings"
)

// QoS is a pod's quality-of-service class.
type QoS uint8

// The classes. The later one is stopped earlier where the class is ranked by.
const (
	QoSUnknown QoS = iota
	Guaranteed
	Burstable
	BestEffort
)

var qosNames = []string{"Unknown", "Guaranteed", "Burstable", "BestEffort"}

// ParseQoS finds a class by the name String gives.
func ParseQoS(s string) (QoS, error) { return parseName[QoS](qosNames, s, "QoS class") }

// String is the class's name, as in a pod's status.
func (q QoS) String() string { return nameOf(qosNames, q, "QoS") }

// MarshalText gives the name.
func (q QoS) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText parses the name.
func (q *QoS) UnmarshalText(text []byte) (err error) {
	*q, err = ParseQoS(string(text))
	return err
}

// QoSFromCgroupParent reads the class off a pod's or a container's cgroup, in the
// form of either driver of the kubelet: ".../kubepods/burstable/pod<uid>/..." or
// ".../kubepods-burstable-pod<uid>.slice...". A pod directly below kubepods is
// Guaranteed. Elsewhere the class is not known.
func QoSFromCgroupParent(path string) QoS {
	below := false
	for _, dir := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' }) {
		words := strings.Split(strings.TrimSuffix(dir, ".slice"), "-")
		if below {
			if qos := qosOfDir(words[0]); qos != QoSUnknown {
				return qos
			}
		}
		switch i := slices.Index(words, "kubepods"); {
		case i >= 0 && i+1 < len(words):
			return qosOfDir(words[i+1])
		case i >= 0:
			below = true
		case below:
			return QoSUnknown
		}
	}
	return QoSUnknown
}

// qosOfDir is what a name directly below kubepods says.
func qosOfDir(name string) QoS {
	switch {
	case name == "burstable":
		return Burstable
	case name == "besteffort":
		return BestEffort
	case strings.HasPrefix(name, "pod"):
		return Guaranteed
	default:
		return QoSUnknown
	}
}

// ContainerResources is what a container requests and is limited to; 0 is none.
type ContainerResources struct {
	CPURequest, CPULimit       int64 // thousandths of a core
	MemoryRequest, MemoryLimit int64 // bytes
}

// QoSFromResources derives a pod's class from all its containers, init containers
// included, as the kubelet does: BestEffort without any request or limit;
// Guaranteed when every container has both limits and the pod's requests equal
// its limits; else Burstable.
func QoSFromResources(containers []ContainerResources) QoS {
	var sum ContainerResources
	limited := true
	for _, c := range containers {
		sum.CPURequest += max(c.CPURequest, 0)
		sum.CPULimit += max(c.CPULimit, 0)
		sum.MemoryRequest += max(c.MemoryRequest, 0)
		sum.MemoryLimit += max(c.MemoryLimit, 0)
		limited = limited && c.CPULimit > 0 && c.MemoryLimit > 0
	}
	switch {
	case sum == ContainerResources{}:
		return BestEffort
	case limited && sum.CPURequest == sum.CPULimit && sum.MemoryRequest == sum.MemoryLimit:
		return Guaranteed
	default:
		return Burstable
	}
}
