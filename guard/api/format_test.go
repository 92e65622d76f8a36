package api

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods"} {
		if got := Count(n, "pod"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Ages and remaining times are JSON to the millisecond, in the notation of every duration.
func TestRounded(t *testing.T) {
	const d = 61*time.Second + 499_600*time.Microsecond
	p := Pass{At: Duration(2 * time.Hour)}
	p.Hold("memory.available:soft", policy.Held{By: HeldBudget, RetryAfter: d})
	p.Observe(&policy.Observations{}, policy.Pressure{Met: []policy.Met{{Since: 2*time.Hour - d, Wait: d}}})
	b := BudgetOf(policy.BudgetView{Hard: policy.BucketView{Next: d}, Workloads: []policy.WorkloadView{{Ago: d, RetryAfter: d}}})
	for name, got := range map[string]Duration{
		"itself": Rounded(d), "next_stop_in": p.NextStopIn, "for": p.Met[0].For, "wait": p.Met[0].Wait,
		"next": b.Hard.Next, "ago": b.Workloads[0].Ago, "retry_after": b.Workloads[0].RetryAfter,
	} {
		text, err := json.Marshal(got)
		if err != nil || string(text) != `"1m1.5s"` {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

// An amount and its threshold are shown with digits enough to differ.
func TestFormatBelow(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		signal               policy.Signal
		available, threshold int64
		want                 string
	}{
		{policy.MemoryAvailable, 86 << 20, 100 << 20, "86Mi < 100Mi"},
		{policy.MemoryAvailable, 15*gib - 3<<20, 15*gib + 1<<20, "15357Mi < 15361Mi"},
		{policy.NodeFSAvailable, gib + 1<<25, gib + 1<<25 + 1, "1107296256 < 1107296257"},
		{policy.MemoryAvailable, 1400<<20 - 72<<10, 1400 << 20, "1399.9Mi < 1400Mi"},
		{policy.MemoryAvailable, 300<<20 - 200<<10, 300 << 20, "299.8Mi < 300Mi"},
		{policy.PIDAvailable, 99, 100, "99 < 100"},
		{policy.MemoryStall, 750_000, 800_000, "75.0% < 80.0%"},
		{policy.MemoryStall, 799_990, 800_000, "79.999% < 80%"},
	} {
		if got := FormatBelow(c.signal, c.available, c.threshold); got != c.want {
			t.Errorf("%s: %q, want %q", c.signal, got, c.want)
		}
	}
}

// Two values of a key are shown with digits enough to differ.
func TestFormatKeys(t *testing.T) {
	for _, c := range []struct {
		key        policy.Key
		a, b       int64
		want, than string
	}{
		{policy.KeyUsage, -31 << 20, -30 << 20, "over_by=-31Mi", "over_by=-30Mi"},
		{policy.KeyUsage, -30<<20 - 200<<10, -30<<20 - 204<<10, "over_by=-30920Ki", "over_by=-30924Ki"},
		{policy.KeyGrowth, 3<<30 + 1<<20, 3<<30 + 2<<20, "growth=3073Mi/s", "growth=3074Mi/s"},
		{policy.KeyPriority, 1, 2, "priority=1", "priority=2"},
	} {
		value := func(n int64) policy.KeyValue { return policy.KeyValue{Key: c.key, Value: n} }
		if a, b := FormatKeys(policy.MemoryAvailable, value(c.a), value(c.b)); a != c.want || b != c.than {
			t.Errorf("%q, %q, want %q, %q", a, b, c.want, c.than)
		}
	}
}

// A threshold is shown as it was configured, if that is short.
func TestFormatThreshold(t *testing.T) {
	for _, c := range []struct {
		signal policy.Signal
		amount int64
		want   string
	}{
		{policy.MemoryAvailable, 1400 << 20, "1400Mi"},
		{policy.MemoryAvailable, 1536 << 20, "1.5Gi"},
		{policy.MemoryAvailable, 100 << 20, "100Mi"},
		{policy.MemoryAvailable, 2_515_333_120, "2.3Gi"},
		{policy.MemoryAvailable, 200, "200"},
		{policy.MemoryAvailable, 0, "0"},
		{policy.PIDAvailable, 1400 << 20, "1468006400"},
		{policy.MemoryStall, 800_000, "80.0%"},
	} {
		if got := FormatThreshold(c.signal, c.amount); got != c.want {
			t.Errorf("%s %d: %q, want %q", c.signal, c.amount, got, c.want)
		}
	}
}
