package top

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

// noon is the current time of the tests.
func noon() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

// signalAt returns a signal with thresholds, each with its kind, value and amount.
func signalAt(s policy.Signal, available, capacity int64, ts ...api.ThresholdStatus) api.SignalStatus {
	for i := range ts {
		ts[i].Met = available < ts[i].Amount
	}
	return api.SignalStatus{
		SignalView: api.SignalView{Signal: s, Available: available, Capacity: capacity, Status: policy.OK.String()},
		Condition:  s.Condition().String(), Thresholds: ts,
	}
}

func hardAt(value string, amount int64) api.ThresholdStatus {
	return api.ThresholdStatus{Kind: hard, Value: value, Amount: amount}
}

func softAt(value string, amount int64) api.ThresholdStatus {
	return api.ThresholdStatus{Kind: soft, Value: value, Amount: amount, Grace: api.Duration(30 * time.Second)}
}

// pressed is the state of an 8 GiB node that is running out of memory.
func pressed(memory int64) api.Status {
	st := api.Status{
		Version: "v1.2.0", Mode: "enforce", Live: true, PID: 812, Uptime: api.Duration(26*time.Hour + 7*time.Minute),
		Runtime:    api.RuntimeStatus{Name: "containerd", Version: "2.4.2", Up: true, ListedAt: new(api.Duration(800 * time.Millisecond))},
		Conditions: policy.ConditionsOf(policy.MemoryPressure), Pods: 7, Protected: 2, Held: "grace", HeldBy: "memory.available:soft",
		Signals: []api.SignalStatus{
			signalAt(policy.MemoryAvailable, memory, 8*gi, hardAt("400Mi", 400*mi), softAt("1Gi", gi)),
			{SignalView: api.SignalView{Signal: policy.AllocatableMemoryAvailable, Status: "absent"}},
			signalAt(policy.MeminfoAvailable, memory+300*mi, 8*gi),
			{SignalView: api.SignalView{Signal: policy.SwapAvailable, Status: "absent"}, Thresholds: []api.ThresholdStatus{hardAt("10%", 0)}, Error: "the node has no swap"},
			signalAt(policy.MemoryStall, 996_000, policy.StallCapacity, hardAt("80%", 800_000)),
			signalAt(policy.PIDAvailable, 31_120, 32_768, hardAt("5%", 1638)),
			signalAt(policy.NodeFSAvailable, 41*gi, 100*gi, hardAt("10%", 10*gi), softAt("20%", 20*gi)),
			signalAt(policy.NodeFSInodesFree, 5_967_210, 6_553_600, hardAt("5%", 327_680)),
			signalAt(policy.ImageFSAvailable, 6*gi, 50*gi, hardAt("15%", 7*gi+512*mi)),
			signalAt(policy.IOStall, 981_000, policy.StallCapacity),
		},
		Budget: api.Budget{Hard: api.Bucket{Left: 3, Burst: 3, LastHour: 3}, Soft: api.Bucket{Burst: 2, Next: api.Duration(95 * time.Second), LastHour: 1}, PerHour: 20},
	}
	return st
}

// ranking is the eviction order for memory.
func ranking() api.Ranking {
	r := api.Ranking{Signal: policy.MemoryAvailable, Available: 900 * mi, Capacity: 8 * gi, Keys: policy.DefaultKeys(policy.ResourceMemory), Live: true}
	add := func(pod, qos string, priority, usage, request int64, excluded string) {
		over := int64(0)
		if usage > request {
			over = 1
		}
		v := api.RankedView{
			Position: len(r.Pods) + 1, Pod: pod, QoS: qos, Priority: priority, Usage: usage, Known: true, Request: request, Frees: usage, Excluded: excluded,
			Keys: []policy.KeyValue{{Key: policy.KeyOverRequest, Value: over}, {Key: policy.KeyPriority, Value: priority}, {Key: policy.KeyUsage, Value: usage - request}},
		}
		if excluded != "" {
			v.Position = 0
		}
		r.Pods = append(r.Pods, v)
	}
	add("batch/leaky-7c9f6b5d4-x2xvq", "BestEffort", 0, 3*gi+410*mi, 0, "")
	add("shop/cart-0", "Burstable", 0, gi+120*mi, 512*mi, "")
	add("shop/search-5d8c9cbb6-kk2lp", "Burstable", 100, 900*mi, 768*mi, "")
	add("shop/checkout-6f7d8c4b9-9xwzt", "Burstable", 100, 300*mi, 512*mi, "")
	add("data/postgres-0", "Guaranteed", 1000, 820*mi, gi, "")
	add("kube-system/coredns-5dd5756b68-8k2zp", "Burstable", 2_000_000_000, 40*mi, 70*mi, "namespace kube-system is protected")
	add("kube-system/kube-proxy-node-1", "BestEffort", 2_000_001_000, 25*mi, 0, "critical pod")
	return r
}

func events() []Event {
	return []Event{
		{noon().Add(-71 * time.Minute), "reclaimed images: 4 removed, 3.1Gi freed", "imagefs.available in 812ms"},
		{noon().Add(-26 * time.Second), "conditions: MemoryPressure", "memory.available:soft"},
		{noon().Add(-25 * time.Second), "stop batch/leaky-7c9f6b5d4-8vwqn (soft, grace 5s)", "memory.available 940Mi < 1Gi for 30s; ranks first: over_request=yes, priority=0, over_by=2.9Gi"},
		{noon().Add(-19 * time.Second), "stopped batch/leaky-7c9f6b5d4-8vwqn", "runtime: empty after 5.1s, effect after 5.4s"},
		{noon().Add(-8 * time.Second), "held back: grace", "memory.available:soft"},
	}
}

// leaking is a model, 12 s old, of a node that loses 40 MiB a second.
func leaking() *Model {
	const last = 900 * mi
	o := Options{Signal: policy.MemoryAvailable, Interval: time.Second, Colour: true}
	m := NewModel(o, pressed(last+12*40*mi), noon().Add(-12*time.Second))
	for i := 11; i >= 0; i-- {
		m.observe(pressed(last+int64(i)*40*mi), nil, noon().Add(-time.Duration(i)*time.Second))
	}
	m.Rank(policy.MemoryAvailable, ranking(), nil, noon())
	m.Happen(events())
	return m
}

// crowded is a model with a thousand pods.
func crowded() *Model {
	m := leaking()
	r := ranking()
	r.Pods = nil
	for i := range 1000 {
		r.Pods = append(r.Pods, api.RankedView{Position: i + 1, Pod: fmt.Sprintf("ns/pod-%d", i+1), QoS: "Burstable", Usage: int64(i) * mi, Known: true})
	}
	m.Rank(policy.MemoryAvailable, r, nil, noon())
	return m
}
