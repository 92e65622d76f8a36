package config

// Mode selects whether criguard acts or only observes.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce"
	ModeObserve Mode = "observe" // dry run: log stops and removals without performing them
)

// String returns the mode as it is written in the configuration.
func (m Mode) String() string { return string(m) }

// DirectKill selects when criguard kills container cgroups itself instead of asking the runtime.
type DirectKill string

// The direct kill settings.
const (
	DirectKillHardMemory DirectKill = "hard-memory" // at once for a hard memory threshold, else as a fallback
	DirectKillFallback   DirectKill = "fallback"    // only if the runtime has not confirmed the stop in time
	DirectKillNever      DirectKill = "never"
)

// AdmissionMode selects what happens to pods that start while the node does not admit them.
type AdmissionMode string

// The admission modes.
const (
	AdmissionOff  AdmissionMode = "off"
	AdmissionStop AdmissionMode = "stop"
)

// PruneMode selects which unused images may be pruned.
type PruneMode string

// The prune modes.
const (
	PruneAuto   PruneMode = "auto"   // images that can be pulled again
	PruneNever  PruneMode = "never"  // no images
	PruneAlways PruneMode = "always" // also images that cannot be pulled again
)

// EventKind is a kind of event that hooks run for.
type EventKind string

// The kinds of events.
const (
	EventCondition EventKind = "condition" // a condition begins or ends
	EventStop      EventKind = "stop"      // a stop has ended, or would have begun (observe mode)
	EventAlarm     EventKind = "alarm"     // stops do not relieve the pressure
)
