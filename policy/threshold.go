package policy

import (
	"cmp"
	"time"
)

// Kind tells a threshold that acts at once from one with a grace period.
type Kind uint8

// The kinds.
const (
	Hard Kind = iota
	Soft
	kindCount
)

var kindNames = []string{"hard", "soft"}

// String is "hard" or "soft".
func (k Kind) String() string { return nameOf(kindNames, k, "kind") }

// MarshalText gives the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name.
func (k *Kind) UnmarshalText(text []byte) (err error) {
	*k, err = parseName[Kind](kindNames, string(text), "kind")
	return err
}

// Threshold is met while less than Value of its signal is available.
type Threshold struct {
	Signal     Signal
	Kind       Kind
	Value      Quantity
	Grace      time.Duration // soft only: how long it must be met before it is acted on
	MinReclaim Quantity      // how far above Value the signal must come before pressure ends
}

// String names the threshold, as "memory.available:hard".
func (t Threshold) String() string { return t.Signal.String() + ":" + t.Kind.String() }

// Target is what must be available, of a capacity, for the threshold to be met
// no more once it was acted on: Value plus MinReclaim.
func (t Threshold) Target(capacity int64) int64 {
	return addCapped(t.Value.Of(capacity), t.MinReclaim.Of(capacity))
}

// Compare orders thresholds by whose turn it is to be acted on: memory before
// PIDs before disk; within each, hard before soft; then by signal.
func (t Threshold) Compare(u Threshold) int {
	return cmp.Or(
		cmp.Compare(t.Signal.Class(), u.Signal.Class()),
		cmp.Compare(t.Kind, u.Kind),
		cmp.Compare(t.Signal, u.Signal),
	)
}

// DefaultHard is the hard thresholds in force where the user names none. They
// are the kubelet's, with one for PIDs, which the kubelet leaves unguarded.
func DefaultHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
		"pid.available":      "5%",
	}
}
