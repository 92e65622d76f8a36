package systemd

// Event is a kind of event. A log record that carries one under the key
// EventKey gets its MESSAGE_ID in the journal, by which programs find it
// (`journalctl MESSAGE_ID=…`) and `journalctl --catalog` explains it.
type Event string

// EventKey is the key of the attribute that names a record's kind of event.
const EventKey = "event"

// The kinds of events. A name may be added, never given another meaning. Quoted are
// the keys that every record of the kind carries, which the catalog builds on.
const (
	// EventStart: the service watches the node.
	EventStart Event = "start"
	// EventShutdown: the service ends on request.
	EventShutdown Event = "shutdown"
	// EventCondition: a pressure condition begins or ends; "condition" names it.
	EventCondition Event = "condition"
	// EventReclaim: something was freed, or could not be, without stopping a sandbox, for "signal".
	EventReclaim Event = "reclaim"
	// EventStopBegin: "pod" is being stopped, or its stop under way is hastened.
	EventStopBegin Event = "stop-begin"
	// EventStopDone: "pod" is gone, checked in its cgroups.
	EventStopDone Event = "stop-done"
	// EventStopFailed: "pod" outlived its stop.
	EventStopFailed Event = "stop-failed"
	// EventHeld: a stop is due for "threshold", and "reason" holds it back.
	EventHeld Event = "held"
	// EventAlarm: stops do not move a signal, as "reason" says: the breaker is open.
	EventAlarm Event = "alarm"
	// EventRuntimeDown: the container runtime does not answer, for "reason".
	EventRuntimeDown Event = "runtime-down"
	// EventRuntimeUp: the container runtime answers again.
	EventRuntimeUp Event = "runtime-up"
	// EventSignalAbsent: a threshold is set on "signal", which this node does not have, for "reason".
	EventSignalAbsent Event = "signal-absent"
	// EventSignalBack: a signal that could not be observed is there again, and its threshold watched.
	EventSignalBack Event = "signal-back"
	// EventConfigReload: a new configuration is in force.
	EventConfigReload Event = "config-reload"
	// EventConfigRefused: a new configuration was refused, for "reason": the old one stays.
	EventConfigRefused Event = "config-refused"
	// EventCommand: an operator's "command" is in force, or is over.
	EventCommand Event = "command"
	// EventHook: a hook's "command" did not do what it should, for "reason".
	EventHook Event = "hook"
	// EventDegraded: the guard works, but with less than it should have, for "reason".
	EventDegraded Event = "degraded"
)

// messageID is the 128-bit ID of a kind. It was drawn at random once and stays: the
// catalog and other people's filters hold it too.
type messageID struct {
	event Event
	id    string
}

func messageIDs() []messageID {
	return []messageID{
		{EventStart, "974a8d3e51dda36a00c9992635360e95"},
		{EventShutdown, "bc2e566b4735b203283b595271ce33d3"},
		{EventCondition, "a4a2680fa09b762d67f06c762bd9a1bf"},
		{EventReclaim, "2e8129bbfab8d9cf3ad7174338b6cf5b"},
		{EventStopBegin, "4261ac454eb477c647c8bf42bd53bad0"},
		{EventStopDone, "ad003abdc152d97ccb6685fcd99af2ee"},
		{EventStopFailed, "80f087bd85beeec243aeeb157a3efaef"},
		{EventHeld, "0337ded2dff94ef0965732110a7eb8ad"},
		{EventAlarm, "8f3717019404ee85c91d227ef12ebb25"},
		{EventRuntimeDown, "3f149438c170820bf4512d366be3be16"},
		{EventRuntimeUp, "51a0406eb8ce24a3d905ba952a251b7d"},
		{EventSignalAbsent, "e7f781823a7ca55b63db19d8d2785018"},
		{EventSignalBack, "cab6bd5618184c0bac1dfa231bfc3537"},
		{EventConfigReload, "72eedf6b7b89db4fb5333b38005a33e9"},
		{EventConfigRefused, "9d5907ac193188cbd901c3aeb2dabd80"},
		{EventCommand, "a1a926cb3a494f5b9bc01b05539999e9"},
		{EventHook, "faf36d1e233e4475bd0d947a1e68f341"},
		{EventDegraded, "ed481ceb9b1be65498e5b2b8e2e0a929"},
	}
}

// Events lists every kind.
func Events() []Event {
	ids := messageIDs()
	events := make([]Event, len(ids))
	for i := range ids {
		events[i] = ids[i].event
	}
	return events
}

// MessageID is the kind's ID, 32 hexadecimal digits; "" for a kind that is none of
// Events.
func (e Event) MessageID() string {
	for _, m := range messageIDs() {
		if m.event == e {
			return m.id
		}
	}
	return ""
}
