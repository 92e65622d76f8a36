package eviction

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// loopKernel is a node with plenty of every resource, on the bubble's clock.
type loopKernel struct {
	start  time.Time
	passes atomic.Int64
}

func (k *loopKernel) Now() time.Duration { return time.Since(k.start) }
func (k *loopKernel) Observe(obs *policy.Observations) {
	k.passes.Add(1)
	obs[policy.MemoryAvailable] = policy.ObserveUsed(1<<40, 1<<30, k.Now())
}
func (k *loopKernel) Layout() policy.Layout      { return policy.SingleFS }
func (k *loopKernel) LayersInMemory() bool       { return false }
func (k *loopKernel) Measure([]policy.Candidate) {}
func (k *loopKernel) CPUs() int                  { return 1 }
func (k *loopKernel) PodsMemory() policy.Amount  { return policy.Amount{} }
func (k *loopKernel) DiskUsage(string) (bytes, inodes policy.DiskUsage) {
	return policy.DiskUsage{}, policy.DiskUsage{}
}
func (k *loopKernel) Remaining(inventory.Pod, policy.Pool) policy.Amount {
	return policy.Amount{}
}
func (k *loopKernel) Unlisted([]inventory.Pod, policy.Signal) (int64, bool) { return 0, false }
func (k *loopKernel) ForgetStalls()                                         {}
func (k *loopKernel) UnlistedIn(inventory.Pod) []string                     { return nil }
func (k *loopKernel) ConfirmUnlisted(time.Duration)                         {}
func (k *loopKernel) Inventory(context.Context, time.Duration) inventory.Inventory {
	return inventory.Inventory{}
}

// runLoop runs a loop in a bubble for that time, while feed sends wake-ups or calls. It returns the number
// of passes.
func runLoop(t *testing.T, length time.Duration, feed func(ctx context.Context, wakes chan<- string, calls chan<- func())) (passes int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &loopKernel{start: time.Now()}
		wakes, calls := make(chan string, 1), make(chan func())
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		l := Loop{Guard: New(config.Default(), k, k, nil, nil, nil, policy.NewRestraint("boot")), Wakes: wakes, Calls: calls, After: func(*api.Pass) {}}
		go feed(ctx, wakes, calls)
		l.Run(ctx)
		passes = k.passes.Load()
		synctest.Wait()
	})
	return passes
}

// Without wake-ups, the loop makes one pass per second.
func TestLoopIdles(t *testing.T) {
	if got := runLoop(t, 10*time.Second+time.Millisecond, func(context.Context, chan<- string, chan<- func()) {}); got != 11 {
		t.Errorf("%d passes in ten seconds, want one at the start and one each second", got)
	}
}

// A storm of wake-ups causes at most one pass every 5 ms, and the loop keeps making passes.
func TestLoopStorm(t *testing.T) {
	got := runLoop(t, time.Second, func(ctx context.Context, wakes chan<- string, _ chan<- func()) {
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case wakes <- "storm":
			default:
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	if got > 201 || got < 190 {
		t.Errorf("%d passes in a second of 10,000 wakes, want one each 5 ms", got)
	}
}

// A wake-up right after a pass is remembered, and served when minPause is over.
func TestLoopRemembersWake(t *testing.T) {
	got := runLoop(t, 500*time.Millisecond, func(_ context.Context, wakes chan<- string, _ chan<- func()) {
		time.Sleep(time.Millisecond) // on the bubble's clock: within minPause after the first pass
		wakes <- "early"
	})
	if got != 2 {
		t.Errorf("%d passes, want the first and the one that was woken", got)
	}
}

// A call and a wake-up that come at the same time, with the timer or before it, cause one pass, after the call: what it sees is not
// chance.
func TestLoopOrdersWhatComesAtOnce(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			k := &loopKernel{start: time.Now()}
			wakes, calls := make(chan string, 1), make(chan func())
			ctx, cancel := context.WithTimeout(t.Context(), maxPause*7/4)
			defer cancel()
			var story []string
			l := Loop{
				Guard: New(config.Default(), k, k, nil, nil, nil, policy.NewRestraint("boot")), Wakes: wakes, Calls: calls,
				After: func(p *api.Pass) { story = append(story, p.Wake) },
			}
			l.Guard.Linger = func() { time.Sleep(time.Nanosecond) }
			for _, at := range []time.Duration{maxPause, maxPause * 3 / 2} {
				go func() { time.Sleep(at); wakes <- "wake" }()
				go func() { time.Sleep(at); calls <- func() { story = append(story, "call") } }()
			}
			l.Run(ctx)
			if want := []string{"start", "call", "wake", "call", "wake"}; !slices.Equal(story, want) {
				t.Errorf("%q, want %q", story, want)
			}
		})
	}
}

// A storm of calls delays no pass.
func TestLoopCallStorm(t *testing.T) {
	got := runLoop(t, 10*time.Second+time.Millisecond, func(ctx context.Context, _ chan<- string, calls chan<- func()) {
		for ctx.Err() == nil {
			select {
			case calls <- func() { time.Sleep(time.Millisecond) }:
			case <-ctx.Done():
			}
		}
	})
	if got < 11 {
		t.Errorf("%d passes in ten seconds, want one at the start and one each second", got)
	}
}

// sleeper is a node that sleeps for a time after its second pass.
type sleeper struct {
	loopKernel
	length time.Duration
}

func (k *sleeper) Now() time.Duration {
	if k.passes.Load() < 2 {
		return k.loopKernel.Now()
	}
	return k.loopKernel.Now() + k.length
}

// The loop says how long the machine slept. A moment is what passes between two clocks.
func TestLoopNoticesSleep(t *testing.T) {
	for length, want := range map[time.Duration][]time.Duration{time.Hour: {time.Hour}, sleepAtLeast - 1: nil} {
		synctest.Test(t, func(t *testing.T) {
			k := &sleeper{loopKernel{start: time.Now()}, length}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var slept []time.Duration
			l := Loop{
				Guard: New(config.Default(), k, k, nil, nil, nil, policy.NewRestraint("boot")), After: func(*api.Pass) {},
				Slept: func(d time.Duration) { slept = append(slept, d) },
			}
			l.Run(ctx)
			if !slices.Equal(slept, want) {
				t.Errorf("slept %s, noticed %s", length, slept)
			}
		})
	}
}

// leaky loses a GiB of memory from pass to pass.
type leaky struct{ loopKernel }

func (k *leaky) Observe(obs *policy.Observations) {
	obs[policy.MemoryAvailable] = policy.ObserveUsed(1<<40, k.passes.Add(1)<<30, k.Now())
}

// How fast memory falls is known also in a pass that is so late that the last sample is old: what grows is stopped then, as the
// passes are late because memory is short.
func TestRatesOfALatePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &leaky{loopKernel{start: time.Now()}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := Loop{Guard: New(config.Default(), k, k, nil, nil, nil, policy.NewRestraint("boot"))}
		l.After = func(*api.Pass) {
			switch k.passes.Load() {
			case 1:
				time.Sleep(15 * time.Second)
			case 2:
				if fill := l.Guard.samples.Fill(policy.MemoryAvailable, &l.Guard.obs, k.Now()); fill != 1<<30/16 {
					t.Errorf("memory falls by %d per second", fill)
				}
				cancel()
			}
		}
		l.Run(ctx)
	})
}

// Calls run between passes.
func TestLoopCalls(t *testing.T) {
	ran := false
	runLoop(t, 100*time.Millisecond, func(_ context.Context, _ chan<- string, calls chan<- func()) {
		done := make(chan struct{})
		calls <- func() { ran = true; close(done) }
		<-done
	})
	if !ran {
		t.Error("the call did not run")
	}
}

func TestPacer(t *testing.T) {
	const gib = 1 << 30
	hard := policy.Threshold{Signal: policy.MemoryAvailable, Value: policy.Bytes(gib)}
	see := func(p *pacer, available int64, at time.Duration) *policy.Observations {
		var obs policy.Observations
		obs[policy.MemoryAvailable] = policy.Observation{Available: available, Capacity: 64 * gib, At: at, Status: policy.OK}
		p.see(&obs, at)
		return &obs
	}
	for _, tc := range []struct {
		name      string
		cpus      int
		available int64
		faster    int64 // a fill seen earlier, bytes per second
		want      time.Duration
	}{
		{"far away", 1, 40 * gib, 0, time.Second},
		{"headroom over twice what a CPU can fault in", 1, 2 * gib, 0, 250 * time.Millisecond},
		{"two CPUs", 2, 2 * gib, 0, 125 * time.Millisecond},
		{"as many CPUs as saturate memory", 16, 9 * gib, 0, 125 * time.Millisecond},
		{"more CPUs", 256, 9 * gib, 0, 125 * time.Millisecond},
		{"twice the fastest fill seen", 1, 2 * gib, 4 * gib, 125 * time.Millisecond},
		{"never below 5 ms", 1, gib + 1, 0, 5 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pacer{cpus: tc.cpus}
			if tc.faster > 0 {
				see(&p, tc.available+tc.faster, 0)
			}
			obs := see(&p, tc.available, time.Second)
			if got := p.pause([]policy.Threshold{hard}, policy.Pressure{}, obs, time.Minute); got != tc.want {
				t.Errorf("pause %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("a fill is forgotten after two minutes", func(t *testing.T) {
		var p pacer
		see(&p, 6*gib, 0)
		see(&p, 2*gib, time.Second)
		var obs *policy.Observations
		for i := range 3 {
			obs = see(&p, 2*gib, time.Duration(i+1)*61*time.Second)
		}
		if got := p.pause([]policy.Threshold{hard}, policy.Pressure{}, obs, time.Minute); got != 500*time.Millisecond {
			t.Errorf("pause %s, want 500ms", got)
		}
	})
	t.Run("a lump between two looks is no fill", func(t *testing.T) {
		var p pacer
		var obs *policy.Observations
		for i, available := range []int64{6 * gib, 6 * gib, 6*gib - gib/16, 6*gib - gib/16} {
			obs = see(&p, available, time.Duration(i)*20*time.Millisecond)
		}
		if got, least := p.pause([]policy.Threshold{hard}, policy.Pressure{}, obs, time.Minute), 900*time.Millisecond; got < least {
			t.Errorf("pause %s after 64 MiB within 60 ms, want at least %s", got, least)
		}
	})
	t.Run("a met threshold is looked at four times a second, a grace period when it ends", func(t *testing.T) {
		var p pacer
		obs := see(&p, gib/2, 0)
		due := policy.Pressure{Met: []policy.Met{{Threshold: hard, Due: true}}}
		if got := p.pause([]policy.Threshold{hard}, due, obs, time.Minute); got != heldPause {
			t.Errorf("pause %s, want %s", got, heldPause)
		}
		waits := policy.Pressure{Met: []policy.Met{{Threshold: hard, Wait: 70 * time.Millisecond}}}
		if got := p.pause([]policy.Threshold{hard}, waits, obs, time.Minute); got != 70*time.Millisecond {
			t.Errorf("pause %s, want 70ms", got)
		}
		for signal, want := range map[policy.Signal]time.Duration{policy.MemoryStall: maxPause, policy.SwapAvailable: heldPause} {
			warns := policy.Pressure{Met: []policy.Met{{Threshold: policy.Threshold{Signal: signal}, WarnOnly: true}}}
			if got := p.pause([]policy.Threshold{{Signal: signal}}, warns, obs, time.Minute); got != want {
				t.Errorf("pause %s while %s only warns, want %s", got, signal, want)
			}
		}
	})
}

// A swap that stays full, or almost as full as its threshold says, costs no more passes than what memory has left.
func TestPacerOfSwap(t *testing.T) {
	const gib = 1 << 30
	hard := policy.Threshold{Signal: policy.SwapAvailable, Value: policy.Bytes(gib)}
	due := policy.Pressure{Met: []policy.Met{{Threshold: hard, Due: true}}}
	for _, tc := range []struct {
		name         string
		swap, memory int64 // available
		pressure     policy.Pressure
		want         time.Duration
	}{
		{"held, and memory lasts", 0, 4 * gib, due, heldPause},
		{"held, and memory is short", 0, gib / 8, due, 62500 * time.Microsecond},
		{"near, and memory is plenty", gib + 1, 40 * gib, policy.Pressure{}, maxPause},
		{"near, and memory is short", gib + 1, gib / 8, policy.Pressure{}, 31250 * time.Microsecond},
	} {
		p := pacer{cpus: 1}
		var obs policy.Observations
		for at := range 2 { // memory falls by 1 GiB/s
			obs[policy.SwapAvailable] = policy.Observation{Available: tc.swap, Capacity: 4 * gib, At: time.Duration(at) * time.Second, Status: policy.OK}
			obs[policy.MeminfoAvailable] = policy.Observation{Available: tc.memory + gib - int64(at)*gib, Capacity: 64 * gib, At: time.Duration(at) * time.Second, Status: policy.OK}
			p.see(&obs, time.Duration(at)*time.Second)
		}
		if got := p.pause([]policy.Threshold{hard}, tc.pressure, &obs, time.Minute); got.Truncate(time.Microsecond) != tc.want.Truncate(time.Microsecond) {
			t.Errorf("%s: pause %s, want %s", tc.name, got, tc.want)
		}
	}
}

// A fork bomb is seen before it has used up the tasks, wherever it begins. Far from the limit, tasks cause no more passes.
func TestPacerOfTasks(t *testing.T) {
	hard := policy.Threshold{Signal: policy.PIDAvailable, Value: policy.Bytes(1638)}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	at := func(available, capacity int64, at time.Duration) *policy.Observations {
		var obs policy.Observations
		obs[policy.PIDAvailable] = policy.Observation{Available: available, Capacity: capacity, At: at, Status: policy.OK}
		return &obs
	}
	due := policy.Pressure{Met: []policy.Met{{Threshold: hard, Due: true}}}
	for _, tc := range []struct {
		name        string
		available   int64
		fell        int64 // within the last second
		capacityWas int64
		pressure    policy.Pressure
		want        time.Duration
	}{
		{"an idle node", 32_000, 0, 32_768, policy.Pressure{}, maxPause},
		{"a fast fill does not reach it within the longest pause", 21_638, 0, 32_768, policy.Pressure{}, maxPause},
		{"nearer", 21_637, 0, 32_768, policy.Pressure{}, ms(499)},
		{"near", 2_038, 0, 32_768, policy.Pressure{}, ms(10)},
		{"at the threshold", 1_639, 0, 32_768, policy.Pressure{}, minPause},
		{"a slower fill was seen", 5_638, 1_000, 32_768, policy.Pressure{}, ms(100)},
		{"a faster fill was seen", 5_638, 40_000, 32_768, policy.Pressure{}, ms(50)},
		{"so many that it is near from further away", 25_638, 40_000, 32_768, policy.Pressure{}, ms(300)},
		{"the pods cgroup came closer to its limit", 5_638, 40_000, 65_536, policy.Pressure{}, ms(100)},
		{"held while a bomb goes on", 1_000, 20_000, 32_768, due, ms(25)},
		{"held, nothing grows", 1_000, 0, 32_768, due, heldPause},
	} {
		var p pacer
		p.see(at(tc.available+tc.fell, tc.capacityWas, 0), 0)
		obs := at(tc.available, 32_768, time.Second)
		p.see(obs, time.Second)
		if got := p.pause([]policy.Threshold{hard}, tc.pressure, obs, time.Minute); got.Truncate(time.Millisecond) != tc.want {
			t.Errorf("%s: pause %s, want %s", tc.name, got, tc.want)
		}
	}
}

// An idle pods cgroup with a low limit costs no passes.
func TestPacerOfALowTaskLimit(t *testing.T) {
	hard := policy.Threshold{Signal: policy.PIDAvailable, Value: policy.Bytes(200)}
	var p pacer
	for at, available := range []int64{1_800, 1_800, 600} {
		var obs policy.Observations
		obs[policy.PIDAvailable] = policy.Observation{Available: available, Capacity: 2_000, At: time.Duration(at) * time.Second, Status: policy.OK}
		p.see(&obs, time.Duration(at)*time.Second)
		want := maxPause
		if available < 1_800 { // it has fallen by 1,200
			want = 200 * time.Millisecond
		}
		if got := p.pause([]policy.Threshold{hard}, policy.Pressure{}, &obs, time.Minute); got > want || want == maxPause && got != want {
			t.Errorf("%d available: pause %s, want %s", available, got, want)
		}
	}
}

// A pass sees the threshold met while tasks are left, from wherever the bomb began, at up to 20,000 tasks per second.
func TestPacerSeesAForkBomb(t *testing.T) {
	hard := policy.Threshold{Signal: policy.PIDAvailable, Value: policy.Bytes(1638)}
	for free := int64(1_700); free <= 32_000; free += 100 {
		for _, rate := range []int64{2_000, 10_000, 20_000} {
			var p pacer
			var obs policy.Observations
			left := free
			for now := time.Duration(0); left >= 1638; left = free - int64(float64(rate)*now.Seconds()) {
				obs[policy.PIDAvailable] = policy.Observation{Available: left, Capacity: 32_768, At: now, Status: policy.OK}
				p.see(&obs, now)
				now += p.pause([]policy.Threshold{hard}, policy.Pressure{}, &obs, time.Minute)
			}
			if left < 1_500 {
				t.Errorf("%d tasks free, %d per second: %d were left when a pass saw it", free, rate, left)
			}
		}
	}
}

// leakyNode is a fakeNode on the bubble's clock whose largest pod leaks. Of several readings at the same time, the first one is
// too low: the kernel moves free pages from one count to another while both are read.
type leakyNode struct {
	*fakeNode
	start time.Time
	read  time.Duration // when the signals were last read
}

// The leak begins after leakAfter, leakRoom above the threshold of a GiB, with leakRate bytes per second.
const (
	leakAfter = 2 * time.Second
	leakRoom  = 64 * testMiB
	leakRate  = 200 * testMiB
	tooLow    = testMiB / 2
)

func (n *leakyNode) Now() time.Duration { return time.Hour + time.Since(n.start) }

func (n *leakyNode) Observe(obs *policy.Observations) {
	n.now = n.Now()
	grown := int64(max(n.now-time.Hour-leakAfter, 0).Seconds() * leakRate)
	n.pods[0].Memory = policy.Known(4*testGiB + grown)
	available := testGiB + leakRoom - grown
	if n.read != n.now {
		n.read, available = n.now, available-tooLow
	}
	n.set(policy.MemoryAvailable, available)
	n.fakeNode.Observe(obs)
}

// All CPUs of the machine can fill its memory, also those that this process may not use.
func TestPauseCountsTheCPUsOfTheMachine(t *testing.T) {
	for cpus, want := range map[int]time.Duration{1: maxPause, 4: maxPause, 64: maxPause / 4} {
		g, n := newManager(t, memoryHard)
		n.cpus = cpus
		n.set(policy.MemoryAvailable, 17*testGiB)
		if n.at(g, 0); g.Pause() != want {
			t.Errorf("%d CPUs: pauses for %s, want %s", cpus, g.Pause(), want)
		}
	}
}

// A leak may cross its threshold twice, because no two readings are equally exact: the first reading of a pass is below the
// threshold, the one that the stop rests on is not, and the next pass does not wait as if the stop were held back.
func TestLeakThatCrossesTwice(t *testing.T) {
	const crossing = leakAfter + leakRoom*time.Second/leakRate
	unneeded := 0
	for phase := time.Duration(0); phase < minPause; phase += minPause / 20 {
		synctest.Test(t, func(t *testing.T) {
			_, fake := newManager(t, memoryHard)
			n := &leakyNode{fakeNode: fake, start: time.Now().Add(-phase)}
			g := New(configtest.Parse(t, memoryHard), n, n, n, n, nil, policy.NewRestraint("boot"))
			n.cpus = 2
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var stopped time.Duration
			l := Loop{Guard: g, After: func(p *api.Pass) {
				if stopped = time.Duration(p.At) - time.Hour; p.Stop != nil {
					cancel()
				} else if len(g.pressure.Met) > 0 {
					unneeded++
				}
			}}
			l.Run(ctx)
			if late := stopped - crossing; late < 0 || late > 2*minPause {
				t.Errorf("stopped %s after the crossing, want %s at most", late, 2*minPause)
			}
		})
	}
	if unneeded == 0 {
		t.Error("no reading crossed the threshold before the leak did")
	}
}
