package policy

import "testing"

func TestVectorsQCritical(t *testing.T) {
	for _, v := range []struct {
		id             string
		static, mirror bool
		priority       int64
		want           bool
	}{
		{"Q-static", true, false, 0, true},
		{"Q-mirror", false, true, 0, true},
		{"Q-P1999999999", false, false, 1_999_999_999, false},
		{"Q-P2000000000", false, false, 2_000_000_000, true},
		{"Q-nil", false, false, 0, false},
	} {
		t.Run(v.id, func(t *testing.T) {
			if got := Critical(v.static || v.mirror, v.priority); got != v.want {
				t.Errorf("got %v, want %v", got, v.want)
			}
		})
	}
}

func TestAdmit(t *testing.T) {
	const memory, pid, disk = MemoryPressure, PIDPressure, DiskPressure
	for _, v := range []struct {
		conditions Conditions
		admitted   []QoS // if not critical
	}{
		{0, []QoS{QoSUnknown, Guaranteed, Burstable, BestEffort}},
		{ConditionsOf(memory), []QoS{QoSUnknown, Guaranteed, Burstable}},
		{ConditionsOf(disk), nil},
		{ConditionsOf(pid), nil},
		{ConditionsOf(memory, disk), nil},
		{ConditionsOf(memory, pid, disk), nil},
	} {
		admitted := map[QoS]bool{}
		for _, q := range v.admitted {
			admitted[q] = true
		}
		for q := QoSUnknown; q <= BestEffort; q++ {
			if got := Admit(v.conditions, q, false); got != admitted[q] {
				t.Errorf("under %q, %s: admitted %v", v.conditions, q, got)
			}
			if !Admit(v.conditions, q, true) {
				t.Errorf("under %q, a critical pod is not admitted", v.conditions)
			}
		}
	}
}

func TestOverLimit(t *testing.T) {
	for _, v := range []struct {
		used, limit int64
		want        bool
	}{{100, 100, false}, {101, 100, true}, {99, 100, false}, {5, 0, false}, {5, -1, false}, {-5, 1, false}} {
		if got := OverLimit(v.used, v.limit); got != v.want {
			t.Errorf("%d of %d: over %v", v.used, v.limit, got)
		}
	}
}
