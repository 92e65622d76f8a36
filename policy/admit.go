package policy

// criticalPriority is system-cluster-critical, the lowest of the two critical
// priority classes.
const criticalPriority = 2_000_000_000

// Critical reports whether a pod is one that the kubelet never evicts and always
// admits: static, a mirror of a static one, or of a critical priority class. A
// pod without a priority has 0.
func Critical(static, mirror bool, priority int64) bool {
	return static || mirror || priority >= criticalPriority
}

// Admit reports whether a new pod may start while the conditions hold, as the
// kubelet decides it: critical ones always; under memory pressure alone all but
// BestEffort; under any other pressure none. (Whether a BestEffort pod tolerates
// memory pressure is not to be learnt without the API.)
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

// OverLimit reports whether usage is above a limit, strictly. There is no limit
// below 1.
func OverLimit(used, limit int64) bool { return limit > 0 && used > limit }
