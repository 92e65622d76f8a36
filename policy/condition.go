package policy

import "strings"

// Condition is a kubelet node condition.
type Condition uint8

// The conditions.
const (
	MemoryPressure Condition = iota
	PIDPressure
	DiskPressure
	conditionCount
)

var conditionNames = []string{"MemoryPressure", "PIDPressure", "DiskPressure"}

// AllConditions lists the conditions in the order of acting.
func AllConditions() []Condition { return []Condition{MemoryPressure, PIDPressure, DiskPressure} }

// String is the condition's name.
func (c Condition) String() string { return nameOf(conditionNames, c, "condition") }

// MarshalText gives the name.
func (c Condition) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the name.
func (c *Condition) UnmarshalText(text []byte) (err error) {
	*c, err = parseName[Condition](conditionNames, string(text), "condition")
	return err
}

// Conditions is a set of conditions. The zero value is the empty set.
type Conditions uint8

// ConditionsOf is the set of the given conditions.
func ConditionsOf(cs ...Condition) Conditions {
	var set Conditions
	for _, c := range cs {
		set |= 1 << c
	}
	return set
}

// Has reports whether c is in the set.
func (cs Conditions) Has(c Condition) bool { return cs&(1<<c) != 0 }

// List gives the members in the order of acting; nil for the empty set.
func (cs Conditions) List() []Condition {
	var list []Condition
	for c := range conditionCount {
		if cs.Has(c) {
			list = append(list, c)
		}
	}
	return list
}

// String joins the names with commas; "" for the empty set.
func (cs Conditions) String() string {
	var names []string
	for _, c := range cs.List() {
		names = append(names, c.String())
	}
	return strings.Join(names, ",")
}
