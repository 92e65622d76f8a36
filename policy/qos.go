package policy

// QoS is a pod's quality-of-service class.
type QoS uint8

// The classes. If pods are ranked by class, a later one is stopped earlier.
const (
	QoSUnknown QoS = iota
	Guaranteed
	Burstable
	BestEffort
)

var qosNames = []string{"Unknown", "Guaranteed", "Burstable", "BestEffort"}

// ParseQoS returns the class with the name that String returns.
func ParseQoS(s string) (QoS, error) { return parseName[QoS](qosNames, s, "QoS class") }

// String returns the class's name, as in a pod's status.
func (q QoS) String() string { return nameOf(qosNames, q, "QoS") }

// criticalPriority is the value of system-cluster-critical, the lower of the two critical priority
// classes.
const criticalPriority = 2_000_000_000

// Critical reports whether the kubelet never evicts and always admits a pod: a static pod, which the API shows as
// a mirror pod, or a pod with a critical priority class. A pod without a priority has 0.
func Critical(static bool, priority int64) bool {
	return static || priority >= criticalPriority
}

// Admit reports whether a new pod may start while the conditions hold, by the kubelet's rules: critical
// pods always; under memory pressure alone, all pods but BestEffort; under any other pressure, none.
// (Without the API, criguard cannot know whether a BestEffort pod tolerates memory pressure.)
func Admit(cs Conditions, qos QoS, critical bool) bool {
	switch {
	case critical || cs == 0:
		return true
	case cs == ConditionsOf(MemoryPressure):
		return qos != BestEffort
	default:
		return false
	}
}

// OverLimit reports whether usage is strictly above a limit. A limit below 1 means no limit.
func OverLimit(used, limit int64) bool { return limit > 0 && used > limit }
