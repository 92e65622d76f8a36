package systemd

// Event is a kind of event. A log record with an Event under EventKey gets that event's MESSAGE_ID in
// the journal. Programs select records by it (`journalctl MESSAGE_ID=…`), and `journalctl --catalog`
// explains it.
type Event string

// EventKey is the key of the attribute that holds a record's kind of event.
const EventKey = "event"

// The kinds of events. New ones may be added, but a name never changes its meaning. Quoted words are
// the keys that every record of the kind has, on which the catalog relies.
const (
	// EventStart: the service starts to watch the node.
	EventStart Event = "start"
	// EventShutdown: the service stops on request.
	EventShutdown Event = "shutdown"
	// EventCondition: a pressure condition begins or ends; "condition" names it.
	EventCondition Event = "condition"
	// EventReclaim: criguard freed something for "signal" without stopping a sandbox, or failed to.
	EventReclaim Event = "reclaim"
	// EventStopBegin: the stop of "pod" begins or is expedited.
	EventStopBegin Event = "stop-begin"
	// EventStopDone: "pod" is gone, as verified in its cgroups.
	EventStopDone Event = "stop-done"
	// EventStopFailed: "pod" is still running after its stop.
	EventStopFailed Event = "stop-failed"
	// EventHeld: a stop is due for "threshold", and "reason" holds it back.
	EventHeld Event = "held"
	// EventAlarm: as "reason" says, stops do not move a signal and its breaker is open, a reclaim takes
	// too long, or a configuration is held that meets a hard threshold at once.
	EventAlarm Event = "alarm"
	// EventRuntimeDown: the container runtime does not answer; "reason" says why.
	EventRuntimeDown Event = "runtime-down"
	// EventRuntimeUp: the container runtime answers again.
	EventRuntimeUp Event = "runtime-up"
	// EventSignalAbsent: a threshold is set on "signal", which this node does not have; "reason" says
	// why.
	EventSignalAbsent Event = "signal-absent"
	// EventSignalBack: a "signal" that could not be read is back, and its threshold is watched again.
	EventSignalBack Event = "signal-back"
	// EventConfigReload: a new configuration is in force.
	EventConfigReload Event = "config-reload"
	// EventConfigRefused: a new configuration was refused because of "reason"; the old one stays in
	// force.
	EventConfigRefused Event = "config-refused"
	// EventCommand: an operator's "command" takes effect or ends.
	EventCommand Event = "command"
	// EventHook: a hook's "command" did not run as it should; "reason" says why.
	EventHook Event = "hook"
	// EventDegraded: criguard works with reduced function; "reason" says why.
	EventDegraded Event = "degraded"
)

// messageIDs are the 128-bit IDs of the kinds. They were generated at random once and must not change: the
// catalog and other people's filters contain them.
var messageIDs = map[Event]string{
	EventStart:         "974a8d3e51dda36a00c9992635360e95",
	EventShutdown:      "bc2e566b4735b203283b595271ce33d3",
	EventCondition:     "a4a2680fa09b762d67f06c762bd9a1bf",
	EventReclaim:       "2e8129bbfab8d9cf3ad7174338b6cf5b",
	EventStopBegin:     "4261ac454eb477c647c8bf42bd53bad0",
	EventStopDone:      "ad003abdc152d97ccb6685fcd99af2ee",
	EventStopFailed:    "80f087bd85beeec243aeeb157a3efaef",
	EventHeld:          "0337ded2dff94ef0965732110a7eb8ad",
	EventAlarm:         "8f3717019404ee85c91d227ef12ebb25",
	EventRuntimeDown:   "3f149438c170820bf4512d366be3be16",
	EventRuntimeUp:     "51a0406eb8ce24a3d905ba952a251b7d",
	EventSignalAbsent:  "e7f781823a7ca55b63db19d8d2785018",
	EventSignalBack:    "cab6bd5618184c0bac1dfa231bfc3537",
	EventConfigReload:  "72eedf6b7b89db4fb5333b38005a33e9",
	EventConfigRefused: "9d5907ac193188cbd901c3aeb2dabd80",
	EventCommand:       "a1a926cb3a494f5b9bc01b05539999e9",
	EventHook:          "faf36d1e233e4475bd0d947a1e68f341",
	EventDegraded:      "ed481ceb9b1be65498e5b2b8e2e0a929",
}

// MessageID returns the kind's ID, 32 hexadecimal digits, or "" for an unknown kind.
func (e Event) MessageID() string { return messageIDs[e] }
