package policy

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestNames: every enumerated value has a unique name that parses back, and nothing else parses.
func TestNames(t *testing.T) {
	for _, v := range []struct {
		zero  fmt.Stringer
		count int
		parse func(string) (any, error) // nil = UnmarshalText
	}{
		{Signal(0), int(SignalCount), nil}, {Kind(0), int(kindCount), nil}, {Key(0), int(keyCount), nil},
		{Pool(0), int(PoolCount), nil},
		{Condition(0), int(conditionCount), func(s string) (any, error) { return parseName[Condition](conditionNames, s, "") }},
		{Status(0), len(statusNames), func(s string) (any, error) { return parseName[Status](statusNames, s, "") }},
		{Layout(0), int(layoutCount), func(s string) (any, error) { return ParseLayout(s) }},
		{QoS(0), 4, func(s string) (any, error) { return ParseQoS(s) }},
	} {
		typ := reflect.TypeOf(v.zero)
		parse := func(s string) (any, error) {
			if v.parse != nil {
				return v.parse(s)
			}
			value := reflect.New(typ)
			err := value.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
			return value.Elem().Interface(), err
		}
		seen := map[string]bool{}
		for i := range v.count {
			value := reflect.New(typ)
			value.Elem().SetUint(uint64(i))
			name := value.Elem().Interface().(fmt.Stringer).String()
			if seen[name] || strings.Contains(name, "(") {
				t.Fatalf("%s %d is named %q", typ, i, name)
			}
			seen[name] = true
			if again, err := parse(name); err != nil || again != value.Elem().Interface() {
				t.Errorf("%s %q reads as %v, %v", typ, name, again, err)
			}
			if m, ok := value.Elem().Interface().(encoding.TextMarshaler); ok {
				if text, err := m.MarshalText(); err != nil || string(text) != name {
					t.Errorf("%s %q is written as %q, %v", typ, name, text, err)
				}
			}
		}
		beyond := reflect.New(typ)
		beyond.Elem().SetUint(uint64(v.count))
		if name := beyond.Elem().Interface().(fmt.Stringer).String(); !strings.Contains(name, "(") {
			t.Errorf("%s %d is named %q", typ, v.count, name)
		}
		for _, wrong := range []string{"", "x", strings.ToUpper(v.zero.String()) + " "} {
			if got, err := parse(wrong); err == nil {
				t.Errorf("%s %q reads as %v", typ, wrong, got)
			}
		}
	}
}

func TestConditionsSet(t *testing.T) {
	set := ConditionsOf(DiskPressure, MemoryPressure)
	if set.String() != "MemoryPressure, DiskPressure" || set.Has(PIDPressure) || !set.Has(DiskPressure) {
		t.Errorf("got %s", set)
	}
	if none := ConditionsOf(); none != 0 || none.String() != "" || none.List() != nil {
		t.Errorf("the empty set is %q", none)
	}
	if got := ConditionsOf(AllConditions()...).List(); !reflect.DeepEqual(got, AllConditions()) {
		t.Errorf("all are %v", got)
	}
}

func TestRankedBy(t *testing.T) {
	want := map[Resource]string{ResourceMemory: "memory", ResourceDisk: "disk", ResourceInodes: "inodes", ResourcePIDs: "pid"}
	for r, name := range want {
		if r.String() != name {
			t.Errorf("%d is named %s, want %s", r, r, name)
		}
	}
}
