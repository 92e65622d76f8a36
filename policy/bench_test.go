package policy

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// benchmarkPods returns pods as on a real node: few priorities, some pods without statistics.
func benchmarkPods(n int) []Candidate {
	r := rand.New(rand.NewPCG(1, 1))
	cs := make([]Candidate, n)
	for i := range cs {
		cs[i] = Candidate{
			ID: strconv.FormatUint(r.Uint64(), 16), Namespace: "default", Name: "pod-" + strconv.Itoa(i), Workload: "default/pod",
			Priority: r.Int64N(3), Created: time.Duration(r.Int64()), MemoryRequest: r.Int64N(gi),
			Memory: Amount{r.Int64N(gi), r.IntN(20) > 0}, PIDs: Known(r.Int64N(50)),
		}
	}
	return cs
}

func BenchmarkRank(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cs := benchmarkPods(n)
			b.ReportAllocs()
			for b.Loop() {
				Rank(cs, MemoryAvailable, SingleFS, nil)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	cs := benchmarkPods(110)
	q := lacking(MemoryAvailable, gi)
	q.Samples.Add(-time.Second, &Observations{}, cs, Amount{})
	b.ReportAllocs()
	for b.Loop() {
		Decide(cs, q)
	}
}

func BenchmarkEvaluateIdle(b *testing.B) {
	ts, obs := idleNode(b)
	var s State
	b.ReportAllocs()
	for b.Loop() {
		s, _ = Evaluate(s, ts, Settings{TransitionPeriod: 5 * minute, SoftForgive: 5 * time.Second}, &obs, minute)
	}
}

func BenchmarkEvaluateMet(b *testing.B) {
	ts, obs := idleNode(b)
	obs[MemoryAvailable].Available = 0
	var s State
	b.ReportAllocs()
	for b.Loop() {
		s, _ = Evaluate(s, ts, Settings{TransitionPeriod: 5 * minute, SoftForgive: 5 * time.Second}, &obs, minute)
	}
}
