package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Commands that operators can send to a running service.
const (
	// CommandPause suspends reclaiming and stops for a while.
	CommandPause = "pause"
	// CommandResume ends a pause.
	CommandResume = "resume"
	// CommandDrain stops every pod that may be stopped.
	CommandDrain = "drain"
	// CommandUndrain ends a drain.
	CommandUndrain = "undrain"
	// CommandReload reads the configuration again.
	CommandReload = "reload"
	// CommandStop stops one pod.
	CommandStop = "stop"
	// CommandProtect protects one pod for a while.
	CommandProtect = "protect"
	// CommandUnprotect ends the protection of one pod.
	CommandUnprotect = "unprotect"
	// CommandPrune is a manual prune. It has a request of its own; records name it.
	CommandPrune = "prune"
)

// Command is an operator's command, as sent over the control socket.
type Command struct {
	Command string   `json:"command"`
	Pod     string   `json:"pod,omitempty"`   // of a stop or a protection: namespace/name, UID or sandbox ID
	For     Duration `json:"for,omitempty"`   // length of a pause or a protection
	Grace   Duration `json:"grace,omitempty"` // grace period of a drain or a stop
	DryRun  bool     `json:"dry_run,omitempty"`
	Now     bool     `json:"now,omitempty"` // reload: do not hold thresholds that are met at once
	Reason  string   `json:"reason,omitempty"`
}

// CommandAnswer is the result of a command.
type CommandAnswer struct {
	APIVersion string     `json:"apiVersion"`
	Message    string     `json:"message"`           // what was done
	Until      time.Time  `json:"until,omitzero"`    // end of a pause, a protection or a held reload, wall clock
	Plan       *DrainPlan `json:"plan,omitempty"`    // of a drain or a stop
	Refused    string     `json:"refused,omitempty"` // of a dry run: why the command itself would be refused now
	Pass       uint64     `json:"pass,omitempty"`    // ID of the pass that records a stop
	Stop       *StopView  `json:"stop,omitempty"`    // the stop, after the command has waited for it
	MetNow     []MetNow   `json:"met_now,omitempty"` // why a reload is held, or what a resume may stop a pod for
}

// MetNow is a hard threshold that is met at once, by a new configuration or after a pause, or may be.
type MetNow struct {
	Signal    policy.Signal `json:"signal"`                  // the signal
	Value     string        `json:"value"`                   // as configured
	Amount    int64         `json:"amount" unit:"signal"`    // the value as an amount
	Available int64         `json:"available" unit:"signal"` // now
	Capacity  int64         `json:"capacity" unit:"signal"`  // of the node
	First     string        `json:"first,omitempty"`         // namespace/name of the pod that would be stopped first
	Held      string        `json:"held,omitempty"`          // why no pod would be stopped; "" = it is not known which
	Unknown   string        `json:"unknown,omitempty"`       // why it is not known whether it is met; the amounts are 0
}

// String says in one sentence what a reload would do.
func (m MetNow) String() string { return m.Would("a reload") }

// Would says in one sentence what putting the threshold in force would do.
func (m MetNow) Would(who string) string {
	if m.Unknown != "" {
		return fmt.Sprintf("hard %s = %s was not checked (%s): %s may stop pods", m.Signal, m.Value, m.Unknown, who)
	}
	what := "stop " + m.First + " first"
	switch {
	case m.Signal.IsDisk() && m.Held == HeldUnknown: // it is measured while criguard removes
		what = "remove what it may, then stop the pod that uses most, which is not known yet"
	case m.First == "" && m.Held != "":
		what = "act at once, but stop no pod (" + m.Held + ")"
	case m.First == "":
		what = "stop pods; the runtime does not say which"
	case m.Signal.IsDisk():
		what = "remove what it may, then stop " + m.First + " first"
	}
	return fmt.Sprintf("hard %s is met NOW, %s: %s would %s", m.Signal, FormatBelow(m.Signal, m.Available, m.Amount), who, what)
}

// CommandView is a command as recorded in a pass.
type CommandView struct {
	Command string   `json:"command"`           // pause, resume, drain, undrain, stop, protect, unprotect, prune or reload
	Pod     string   `json:"pod,omitempty"`     // of a stop or a protection: namespace/name
	For     Duration `json:"for,omitempty"`     // length of a pause or a protection
	Grace   Duration `json:"grace,omitempty"`   // grace period of a drain or a stop
	Reason  string   `json:"reason,omitempty"`  // as given by the operator
	By      *Peer    `json:"by,omitempty"`      // left out = criguard itself
	Verdict string   `json:"verdict,omitempty"` // of a reload
}

// Errors of commands.
var (
	// ErrBadCommand reports a command that is malformed or breaks a limit.
	ErrBadCommand = errors.New("bad command")
	// ErrNoPod reports a command for a pod that does not run.
	ErrNoPod = errors.New("no running pod")
	// ErrRefused reports a command that the state of the service does not allow.
	ErrRefused = errors.New("refused")
)

// Limits of a command.
const (
	// MaxCommand is the maximum size of a command, in bytes of JSON.
	MaxCommand = 8 << 10
	maxReason  = 256 // bytes
	maxPod     = 512 // bytes
)

// ParseCommand parses and validates a command. It returns ErrBadCommand with the limit that the command
// breaks.
func ParseCommand(r io.Reader) (Command, error) {
	bad := func(format string, args ...any) (Command, error) {
		return Command{}, fmt.Errorf("%w: %w", ErrBadCommand, fmt.Errorf(format, args...))
	}
	var c Command
	dec := json.NewDecoder(io.LimitReader(r, MaxCommand))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return bad("%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("more than one JSON value")
	}
	lasts, stops, onePod := false, false, false
	switch c.Command {
	case CommandPause:
		lasts = true
	case CommandDrain:
		stops = true
	case CommandStop:
		stops, onePod = true, true
	case CommandProtect:
		lasts, onePod = true, true
	case CommandUnprotect:
		onePod = true
	case CommandResume, CommandUndrain, CommandReload:
	default:
		return bad("%q is not a command: use pause, resume, drain, undrain, stop, protect, unprotect or reload", c.Command)
	}
	switch {
	case lasts && (c.For <= 0 || time.Duration(c.For) > MaxPaused):
		return bad("%s lasts more than 0s and up to %s, not %s", c.Command, policy.ShortDuration(MaxPaused), policy.ShortDuration(time.Duration(c.For)))
	case stops && (c.Grace < 0 || time.Duration(c.Grace) > MaxDrainGrace):
		return bad("the grace period of %s is 0s to %s, not %s", c.Command, policy.ShortDuration(MaxDrainGrace), policy.ShortDuration(time.Duration(c.Grace)))
	case c.For != 0 && !lasts:
		return bad(`"for" belongs to pause and protect`)
	case (c.Grace != 0 || c.DryRun) && !stops:
		return bad(`"grace" and "dry_run" belong to drain and stop`)
	case c.Pod != "" && !onePod:
		return bad(`"pod" belongs to stop, protect and unprotect`)
	case onePod && (c.Pod == "" || len(c.Pod) > maxPod || !plainText(c.Pod)):
		return bad("%s needs a pod: namespace/name, UID or sandbox ID", c.Command)
	case c.Now && c.Command != CommandReload:
		return bad(`"now" belongs to reload alone`)
	case len(c.Reason) > maxReason:
		return bad("the reason has %d bytes, and may have %d", len(c.Reason), maxReason)
	case !plainText(c.Reason):
		return bad("the reason must be one line of text")
	}
	return c, nil
}

// plainText reports whether the text is safe to print in one line of a log or a terminal.
func plainText(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// MaxDrainGrace is the maximum grace period of a drain or a stop.
const MaxDrainGrace = time.Hour

// DrainPlan lists the pods that a drain stops, in order, and those that it keeps, with the reason.
type DrainPlan struct {
	APIVersion string     `json:"apiVersion"`
	Draining   bool       `json:"draining"` // a drain is in force
	Left       int        `json:"left"`     // pods still to be stopped, including those in flight
	Pods       []DrainPod `json:"pods"`     // in the order in which they are stopped
}

// DrainPod is one pod of a drain.
type DrainPod struct {
	Pod      string   `json:"pod"`                // namespace/name
	UID      string   `json:"uid"`                // of the pod
	Sandbox  string   `json:"sandbox"`            // ID in the runtime
	Priority int64    `json:"priority" unit:"-"`  // the lowest is stopped first
	QoS      string   `json:"qos"`                // Guaranteed, Burstable, BestEffort or Unknown
	Grace    Duration `json:"grace"`              // grace period
	Stopping bool     `json:"stopping,omitempty"` // in flight
	Stays    string   `json:"stays,omitempty"`    // why it is not stopped; "" = it is stopped
}

// String names the orders in force, as "pause, drain", or "none".
func (o Orders) String() string {
	var names []string
	if o.Pause != nil {
		names = append(names, CommandPause)
	}
	if o.Drain != nil {
		names = append(names, CommandDrain)
	}
	if len(o.Protected) > 0 {
		names = append(names, CommandProtect)
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Protect adds a protection, or replaces that of the same pod. Copies of the orders stay as they are.
func (o *Orders) Protect(p Protection) {
	o.Unprotect(p.Pod)
	o.Protected = append(slices.Clip(o.Protected), p)
}

// Unprotect removes the protection of a pod, by namespace/name, and reports whether there was one. Copies of
// the orders stay as they are.
func (o *Orders) Unprotect(pod string) bool {
	before := len(o.Protected)
	o.Protected = slices.DeleteFunc(slices.Clone(o.Protected), func(p Protection) bool { return p.Pod == pod })
	return len(o.Protected) < before
}

// Expire ends a pause or else a protection whose time is over, and returns that for the record, or nil. It ends
// one at a time, because a pass records one command. now is the time since boot.
func (o *Orders) Expire(now time.Duration) *CommandView {
	if o.Pause != nil && now >= time.Duration(o.Pause.Until) {
		o.Pause = nil
		return &CommandView{Command: CommandResume, Reason: "the pause is over"}
	}
	for _, p := range o.Protected {
		if now >= time.Duration(p.Until) {
			o.Unprotect(p.Pod)
			return &CommandView{Command: CommandUnprotect, Pod: p.Pod, Reason: "the protection is over"}
		}
	}
	return nil
}

// Orders are the operators' commands that are still in force. They survive a restart of the service, in the
// run directory, but not a reboot.
type Orders struct {
	Pause     *Pause       `json:"pause,omitempty"`     // left out if none is in force
	Drain     *Drain       `json:"drain,omitempty"`     // left out if none is in force
	Protected []Protection `json:"protected,omitempty"` // pods that operators protect for a while
}

// Protection protects the sandboxes of one pod, also those that are created later, until a time.
type Protection struct {
	Pod    string   `json:"pod"`              // namespace/name
	Since  Duration `json:"since"`            // since boot
	Until  Duration `json:"until"`            // since boot
	Left   Duration `json:"left,omitempty"`   // remaining time, in a status only
	Reason string   `json:"reason,omitempty"` // as given by the operator
	By     Peer     `json:"by"`               // who gave the order
}

// Pause is a period in which criguard observes and logs, but neither reclaims nor stops.
type Pause struct {
	Since  Duration `json:"since"`            // since boot
	Until  Duration `json:"until"`            // since boot
	Reason string   `json:"reason,omitempty"` // as given by the operator
	By     Peer     `json:"by"`               // who sent the command
}

// Replaced says for the answer to another pause which one that replaces, and for how long that would have lasted. now is since boot.
func (p *Pause) Replaced(now time.Duration) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("; this replaces the pause by %s, which would have lasted for %s", p.By, policy.ShortDuration(time.Duration(p.Until)-now))
}

// Drain is an order to stop every pod that may be stopped, and to keep it that way.
type Drain struct {
	Since  Duration `json:"since"`            // since boot
	Grace  Duration `json:"grace"`            // a pod's own grace period is used if it is shorter
	Reason string   `json:"reason,omitempty"` // as given by the operator
	By     Peer     `json:"by"`               // who sent the command
}

// Peer is the process that sent a command, as reported by the kernel.
type Peer struct {
	UID int `json:"uid"` // user ID
	PID int `json:"pid"` // process ID
}

// String names the user: "root" or "uid 1000".
func (p Peer) String() string {
	if p.UID == 0 {
		return "root"
	}
	return fmt.Sprintf("uid %d", p.UID)
}

// MaxPaused is the maximum length of a pause or a protection: a forgotten one leaves the node unguarded.
const MaxPaused = 24 * time.Hour

// MaxProtected is the maximum number of pods that operators protect at once.
const MaxProtected = 256

// PruneOptions select what a manual prune removes.
type PruneOptions struct {
	// With both set, containers are removed only if the service also removes them. Containers alone removes
	// them even if [containers] gc is off.
	Containers, Images bool
	DryRun             bool
	IgnoreAge          bool // also remove images that are younger than min_age or unused_grace
	// The prune ends as soon as the signal's filesystem has Until available, and leaves images that are on another one. A zero
	// quantity removes everything eligible.
	Signal policy.Signal
	Until  policy.Quantity
	// Progress is called for each removed item; may be nil.
	Progress func(reclaim.Item)
}

// Duration is a duration that JSON encodes as a string ("1.5s").
type Duration = reclaim.Duration
