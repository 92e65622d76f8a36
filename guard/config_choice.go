package guard

// Mode is whether the guard acts.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce"
	ModeObserve Mode = "observe" // everything but the acts
)

// String is the mode as the configuration has it.
func (m Mode) String() string { return string(m) }

// DirectKill is when container cgroups are killed without the runtime.
type DirectKill string

// When to kill directly.
const (
	DirectKillHardMemory DirectKill = "hard-memory" // at once for a hard memory threshold; for others as a fallback
	DirectKillFallback   DirectKill = "fallback"    // only when the runtime has not confirmed in time
	DirectKillNever      DirectKill = "never"
)

// AdmissionMode is what happens to pods that start while they are not admitted.
type AdmissionMode string

// The admission modes.
const (
	AdmissionOff  AdmissionMode = "off"
	AdmissionStop AdmissionMode = "stop"
)

// PruneMode is which unused images may be pruned.
type PruneMode string

// The prune modes.
const (
	PruneAuto   PruneMode = "auto"   // those that can be pulled again
	PruneNever  PruneMode = "never"  // none
	PruneAlways PruneMode = "always" // those that cannot be pulled again, too
)

// EventKind is what hooks are run for.
type EventKind string

// The kinds of events.
const (
	EventCondition EventKind = "condition" // one begins or ends
	EventStop      EventKind = "stop"      // one has ended, or would have begun (observe mode)
	EventAlarm     EventKind = "alarm"     // stops do not help
)
