package policy

import (
	"encoding"
	"reflect"
	"strings"
	"testing"
)

// TestNames: every enumerated value has a name of its own that reads back, and
// nothing else does.
func TestNames(t *testing.T) {
	type text interface {
		encoding.TextMarshaler
		String() string
	}
	for _, v := range []struct {
		zero  text
		count int
	}{
		{Signal(0), int(SignalCount)}, {Condition(0), int(conditionCount)}, {Kind(0), int(kindCount)}, {Status(0), 3},
		{Layout(0), 3}, {QoS(0), 4}, {Key(0), int(keyCount)},
	} {
		typ := reflect.TypeOf(v.zero)
		seen := map[string]bool{}
		for i := range v.count {
			value := reflect.New(typ)
			value.Elem().SetUint(uint64(i))
			name, err := value.Elem().Interface().(text).MarshalText()
			if err != nil || seen[string(name)] || strings.Contains(string(name), "(") {
				t.Fatalf("%s %d is named %q, %v", typ, i, name, err)
			}
			seen[string(name)] = true
			again := reflect.New(typ)
			if err := again.Interface().(encoding.TextUnmarshaler).UnmarshalText(name); err != nil || again.Elem().Uint() != uint64(i) {
				t.Errorf("%s %q reads as %v, %v", typ, name, again.Elem(), err)
			}
		}
		beyond := reflect.New(typ)
		beyond.Elem().SetUint(uint64(v.count))
		if name := beyond.Elem().Interface().(text).String(); !strings.Contains(name, "(") {
			t.Errorf("%s %d is named %q", typ, v.count, name)
		}
		for _, wrong := range []string{"", "x", strings.ToUpper(v.zero.String()) + " "} {
			if err := beyond.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(wrong)); err == nil {
				t.Errorf("%s %q reads as %v", typ, wrong, beyond.Elem())
			}
		}
	}
}

func TestConditionsSet(t *testing.T) {
	set := ConditionsOf(DiskPressure, MemoryPressure)
	if set.String() != "MemoryPressure,DiskPressure" || set.Has(PIDPressure) || !set.Has(DiskPressure) {
		t.Errorf("got %s", set)
	}
	if none := ConditionsOf(); none != 0 || none.String() != "" || none.List() != nil {
		t.Errorf("the empty set is %q", none)
	}
	if got := ConditionsOf(AllConditions()...).List(); !reflect.DeepEqual(got, AllConditions()) {
		t.Errorf("all are %v", got)
	}
}

func TestClosest(t *testing.T) {
	for in, want := range map[string]string{
		"mem.available": "memory.available", "nodefs.inodefree": "nodefs.inodesFree", "pids.available": "pid.available",
		"memory.stal": "memory.stall", "invalid.foo": "", "": "", "x": "",
	} {
		if got := closest(in, signalNames); got != want {
			t.Errorf("%q is taken for %q, want %q", in, got, want)
		}
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
