package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
)

// dice makes the choices of a seed.
type dice struct{ *rand.Rand }

// diceOf returns the dice of one kind of choice of a seed. Each kind has a number of its own, so that another choice of one
// kind leaves the choices of all others as they are.
func diceOf(seed, kind uint64) dice { return dice{rand.New(rand.NewPCG(seed, kind))} }

// one in n.
func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

// between returns a number from a to b.
func (d dice) between(a, b int64) int64 { return a + d.Int64N(b-a+1) }

// spread returns a number from a to b, whose magnitudes are equally likely.
func (d dice) spread(a, b float64) int64 { return int64(a * math.Exp(d.Float64()*math.Log(b/a))) }

// at returns a time from a to b, in milliseconds.
func (d dice) at(a, b time.Duration) time.Duration {
	return time.Duration(d.between(int64(a/time.Millisecond), int64(b/time.Millisecond))) * time.Millisecond
}

// pick returns one of several.
func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// FromSeed returns a world in which a seed chose everything, and how long it lasts. Each kind of trouble takes part in some
// seeds only: together, they would hide each other.
func FromSeed(tb testing.TB, seed uint64) (w *World, length time.Duration) {
	tb.Helper()
	d := diceOf(seed, 13)
	capacity := d.between(1024, 8192) * mib
	length = d.at(2*time.Minute, 6*time.Minute)
	hard := d.between(100, 400) * mib
	lines := []string{fmt.Sprintf(`eviction.hard."memory.available" = "%dMi"`, hard/mib)}
	soft := int64(0)
	if d.oneIn(3) {
		soft = hard + d.between(100, 300)*mib
		lines = append(lines, fmt.Sprintf(`eviction.soft."memory.available" = "%dMi"`, soft/mib),
			fmt.Sprintf(`eviction.soft_grace_period."memory.available" = "%ds"`, d.between(0, 60)))
	}
	observe := d.oneIn(20)
	if observe {
		lines = append([]string{`mode = "observe"`}, lines...)
	}
	steady := d.oneIn(2)
	free, keeps := int64(0), time.Duration(0)
	if d.oneIn(4) {
		free = d.between(1024, 4096) * mib
		for _, signal := range []string{"nodefs.available", "imagefs.available"} {
			lines = append(lines, fmt.Sprintf("eviction.hard.%q = \"%dMi\"", signal, free/mib))
		}
		minAge, grace := pick(d, 0, 2*time.Minute), pick(d, 0, time.Minute, time.Hour)
		lines = append(lines, fmt.Sprintf("images = {min_age = \"%v\", unused_grace = \"%v\"}", minAge, grace))
		keeps = max(minAge, grace)
	}
	deletionLines, deletions := deletionsOf(seed, free > 0)
	lines = append(lines, deletionLines...)
	swap, swapShort, cached := swapOf(seed, capacity)
	if swap > 0 {
		lines = append(lines, fmt.Sprintf(`eviction.hard."swap.available" = "%dMi"`, swapShort/mib))
	}
	stallLines, stallLimit, happens := stallsOf(seed, length)
	lines = append(lines, stallLines...)
	for i := 0; i < 40 && !steady; i += 3 {
		lines = append(lines, fmt.Sprintf("[[priority]]\nname = \"pod-%d\"\nvalue = %d", i, pick(d, -10, 10, 1000)))
	}
	limitLines, limit := limitsOf(seed, length, free > 0)
	lines = append(lines, limitLines...)
	w = New(tb, d.oneIn(2), capacity, pick(d, critest.Dialects()...), lines...)
	w.hard, w.soft, w.pids, w.steady = hard, soft, pidMax/20, steady
	w.observe, w.weak, w.free.bytes, w.keeps = observe, observe, free, keeps
	w.swap, w.swapShort, w.limit = swap, swapShort, stallLimit
	w.logf("seed %d: %d MiB, cgroup v1 %t, %q", seed, capacity/mib, w.v1, lines)
	flatOf(w, seed)
	if free > 0 {
		apartOf(w, seed)
		fillDisk(w, d)
	}
	addPods(w, d)
	if free > 0 {
		giveVolumes(w, seed)
		giveLogs(w, seed)
		reserveOf(w, seed, length)
	}
	sharedOf(w, seed)
	limit(w)
	deletions(w)
	if swap > 0 {
		w.cache = max(hard, soft) + cached
	}
	w.At(0, (*World).Start)
	for i := range d.IntN(3) {
		if free > 0 {
			w.At(d.at(5*time.Second, length/2), func(w *World) { write(w, d) })
			w.At(d.at(5*time.Second, length), func(w *World) { w.pull(fmt.Sprintf("new:%d", i), d.spread(20, 900)*mib) })
		}
	}
	if d.oneIn(2) {
		w.At(d.at(5*time.Second, length/2), func(w *World) { leak(w, d) })
	}
	if d.oneIn(3) {
		w.At(d.at(5*time.Second, length/2), func(w *World) { leak(w, d) })
	}
	if d.oneIn(8) {
		w.At(d.at(5*time.Second, length/2), func(w *World) { hogOutside(w, d) })
	}
	if d.oneIn(6) {
		w.At(d.at(5*time.Second, length/2), func(w *World) { forkBomb(w, d) })
	}
	for range d.IntN(3) {
		w.At(d.at(5*time.Second, length), func(w *World) { spike(w, d) })
	}
	if d.oneIn(3) {
		noise(w, d, length)
	}
	w.deaf, w.overflows = d.oneIn(8), d.oneIn(8)
	if w.kubelet = d.oneIn(2); w.kubelet {
		w.At(kubeletEvery, func(w *World) { kubelet(w, d) })
	}
	for range d.IntN(2) {
		w.At(d.at(5*time.Second, length), func(w *World) { w.sleep(d.at(time.Second, 3*time.Hour)) })
	}
	if d.oneIn(8) {
		broken := d.at(time.Second, time.Minute)
		w.At(d.at(5*time.Second, length), func(w *World) { w.BreakDisk(broken) })
	}
	if d.oneIn(8) {
		unreadable(w, d, d.at(5*time.Second, length))
	}
	if d.oneIn(8) {
		storm(w, d.at(5*time.Second, length))
	}
	for _, e := range happens {
		w.At(e.at, e.do)
	}
	for range d.IntN(3) {
		crash(w, d, d.at(time.Second, length))
	}
	if d.oneIn(12) { // a crash loop
		for at := d.at(time.Second, length/2); at < length; at += d.at(5*time.Second, 40*time.Second) {
			crash(w, d, at)
		}
	}
	for range d.IntN(3) {
		runtimeTrouble(w, d, d.at(time.Second, length))
	}
	for range d.IntN(3) {
		operate(w, d, d.at(5*time.Second, length))
	}
	napsOf(w, seed)
	accidentsOf(w, seed, length)
	prunesOf(w, seed, length)
	taskLimitsOf(w, seed, length)
	shimsOf(w, seed, length)
	garbageOf(w, seed, length)
	return w, length
}

// swapOf returns how much swap a seed has, and the threshold for it: in one of four seeds. cached is how much page cache is
// left when a threshold of memory is met, so that the kernel fills the swap before that. It has dice of its own.
func swapOf(seed uint64, capacity int64) (swap, threshold, cached int64) {
	d := diceOf(seed, 17)
	if !d.oneIn(4) {
		return 0, 0, 0
	}
	swap = d.between(64, capacity/mib/4) * mib
	return swap, max(swap/100*d.between(10, 90), mib), d.between(0, 600) * mib
}

// addPods adds 5 to 40 pods that use at most half of the memory.
func addPods(w *World, d dice) {
	total := int64(0)
	for i := range d.between(5, 40) {
		used := d.spread(3, 220) * mib
		if total += used; total > w.capacity/2 {
			break
		}
		p := &pod{used: used, tasks: d.between(1, 20)}
		p.spec.Name = fmt.Sprint("pod-", i)
		if !w.steady {
			p.spec.QoS = pick(d, "BestEffort", "Burstable", "Guaranteed")
		}
		if p.spec.QoS == "Guaranteed" {
			p.limit = used + d.between(10, 300)*mib
		}
		if d.oneIn(8) {
			p.spec.Namespace, p.protected = "kube-system", true
		}
		c := critest.ContainerSpec{IgnoreTERM: d.oneIn(4), MemoryLimit: p.limit}
		if w.free.bytes > 0 {
			c.Image = fmt.Sprintf("registry.local/app:%d", d.between(1, 5))
		}
		p.spec.Containers = append(p.spec.Containers, c)
		if d.oneIn(5) {
			p.spec.Containers = append(p.spec.Containers, critest.ContainerSpec{Name: "sidecar"})
		}
		if d.oneIn(2) {
			p.returns = d.at(time.Second, 20*time.Second)
		}
		if d.oneIn(30) {
			p.linger = d.at(0, 20*time.Second) // in D state
			p.spec.Containers[0].Lingers = p.linger
		}
		w.addPod(p)
	}
	w.outside = max(w.capacity-w.podsUse()-max(w.hard, w.soft)-d.spread(50, 800)*mib, 0)
	w.cache = d.between(0, 500) * mib
}

// fillDisk puts images on the disk, and leaves 1 to 4 GiB until the threshold.
func fillDisk(w *World, d dice) {
	w.disk.total = d.between(20, 100) * gib
	for i := range 5 {
		w.runtime.AddImage(critest.ImageSpec{Tags: []string{fmt.Sprintf("registry.local/app:%d", i+1)}, Size: d.spread(20, 900) * mib})
	}
	for i := range d.between(0, pick[int64](d, 0, 5, 30)) {
		w.pull(fmt.Sprintf("old:%d", i), d.spread(20, 900)*mib)
	}
	w.leave(d.between(1, 4) * gib)
}

// leave lets other files take the disk, but for so many bytes until the threshold.
func (w *World) leave(bytes int64) {
	w.disk.other.Store(0)
	w.disk.other.Store(w.disk.total - w.disk.used().bytes - w.free.bytes - bytes)
}

// giveVolumes gives some pods an emptyDir, in one of two seeds: they write to it, and some have filled it before. It has dice of
// its own.
func giveVolumes(w *World, seed uint64) {
	d := diceOf(seed, 23)
	if !d.oneIn(2) {
		return
	}
	for _, p := range w.pods {
		if d.oneIn(3) {
			continue
		}
		p.toVolume, p.returns = pick(d, 0.5, 1), max(p.returns, d.at(time.Second, 20*time.Second))
		if bytes := d.spread(10, 3000) * mib; d.oneIn(4) && bytes < w.disk.other.Load() {
			w.disk.volumes.add(p.UID, space{bytes: bytes})
			w.disk.other.Add(-bytes)
		}
	}
}

func write(w *World, d dice) {
	p := someone(w, d)
	if p == nil {
		return
	}
	p.writes, p.leaks = d.spread(1, 500)*mib, time.Now()
	w.logf("%s begins to write %d MiB/s, %.0f %% of them to its volume", p, p.writes/mib, p.toVolume*100)
}

// someone returns a pod that runs, nil if none does.
func someone(w *World, d dice) *pod {
	for range 10 {
		if p := w.pods[d.IntN(len(w.pods))]; p.runs() {
			return p
		}
	}
	return nil
}

func leak(w *World, d dice) {
	p := someone(w, d)
	if p == nil {
		return
	}
	p.rate = d.spread(1, 3000) * mib
	p.leaks = time.Now()
	w.logf("%s begins to leak %d MiB/s", p, p.rate/mib)
}

func forkBomb(w *World, d dice) {
	p := someone(w, d)
	if p == nil {
		return
	}
	p.forks = d.spread(100, 20000)
	p.leaks = time.Now()
	w.logf("%s begins to start %d tasks a second", p, p.forks)
}

// spike lets a job take memory until a threshold is met, and end by itself soon after.
func spike(w *World, d dice) {
	p := someone(w, d)
	if p == nil || p.rate > 0 {
		return
	}
	p.rate, p.leaks = d.spread(100, 3000)*mib, time.Now()
	w.logf("%s is a job and takes %d MiB/s", p, p.rate/mib)
	delay := d.at(0, 20*time.Millisecond)
	w.When(func() bool { return !p.runs() || w.available() <= w.hard }, w.Now(), time.Millisecond, func(w *World) {
		if !p.runs() {
			return
		}
		w.At(w.Now()+delay, func(w *World) {
			if p.runs() {
				w.end(p, "ends by itself", 0)
			}
		})
	})
}

// crash kills the service and starts it again.
func crash(w *World, d dice, at time.Duration) {
	w.At(at, (*World).Kill)
	w.At(at+d.at(0, 3*time.Second), func(w *World) {
		if w.service == nil {
			w.Start()
		}
	})
	w.weak = true
}

func hogOutside(w *World, d dice) {
	w.hog = d.spread(1, 3000) * mib
	w.logf("a process outside the pods takes %d MiB/s", w.hog/mib)
	w.At(w.Now()+d.at(time.Second, time.Minute), func(w *World) {
		w.logf("the process outside the pods has ended")
		w.hog, w.hogTook = 0, 0
		w.outside = max(w.capacity-w.podsUse()-max(w.hard, w.soft)-400*mib, 0)
	})
}

// noise lets processes outside the pods take and free up to 30 MiB.
func noise(w *World, d dice, length time.Duration) {
	for at := time.Second; at < length; at += d.at(100*time.Millisecond, 5*time.Second) {
		amount := d.Int64N(30 * mib)
		w.At(at, func(w *World) { w.noise = amount })
	}
}

// seesAgain is how long after the runtime's trouble the service may need to list its pods.
const seesAgain = 10 * time.Second

func runtimeTrouble(w *World, d dice, at time.Duration) {
	length := d.at(10*time.Millisecond, 20*time.Second)
	var fault critest.Fault
	switch d.IntN(4) {
	case 0:
		w.At(at, func(w *World) {
			w.logf("the runtime is restarted and away for %v", length)
			w.blindUntil = max(w.blindUntil, w.Now()+length+seesAgain)
			w.away = true
			w.runtime.Stop()
		})
		w.At(at+length, func(w *World) {
			w.away = false
			w.runtime.Start()
			w.logf("the runtime is back")
		})
		return
	case 1:
		fault.Hang = true
	case 2:
		fault.Err = critest.Code(codes.Unavailable, "transport is closing")
	case 3:
		fault.Delay = d.at(time.Millisecond, 3*time.Second)
	}
	fault.Method = pick(d, "", "", "ListPodSandbox", "ListContainers", "ContainerStatus", "StopPodSandbox", "StopContainer")
	release := func() {}
	w.At(at, func(w *World) {
		w.logf("the runtime: %q: delay %v, hang %t, error %v", fault.Method, fault.Delay, fault.Hang, fault.Err)
		w.blindUntil = max(w.blindUntil, w.Now()+length+seesAgain)
		release = w.runtime.Inject(fault)
	})
	w.At(at+length, func(w *World) {
		release()
		w.logf("the runtime answers again")
	})
}

func operate(w *World, d dice, at time.Duration) {
	switch d.IntN(4) {
	case 0:
		lines, bad := w.settings, d.oneIn(2)
		if bad {
			lines = append([]string{"eviction.intervall = '3s'"}, lines...)
		} else {
			lines = append([]string{"eviction.interval = '3s'"}, lines...)
		}
		w.At(at, func(w *World) { w.Reload(bad, lines...) })
	case 1:
		length := d.at(time.Second, time.Minute)
		w.weak = true
		w.At(at, func(w *World) {
			w.Command(api.Command{Command: api.CommandPause, For: api.Duration(length)}, func() {
				w.pausedAt, w.pausedUntil = w.Now(), w.Now()+length
			})
		})
		if d.oneIn(2) {
			w.At(at, func(w *World) { leak(w, d) })
		}
		if d.oneIn(2) {
			crash(w, d, at+d.at(time.Second, length))
		}
	case 2:
		w.At(at, func(w *World) {
			if p := someone(w, d); p != nil {
				p.asked = true
				w.Command(api.Command{Command: api.CommandStop, Pod: p.String(), Grace: api.Duration(5 * time.Second)}, func() {})
			}
		})
	case 3:
		w.At(at, func(w *World) {
			if p := someone(w, d); p != nil {
				w.Command(api.Command{Command: api.CommandProtect, Pod: p.String(), For: api.Duration(24 * time.Hour)}, func() { p.protected, p.protectedAt = true, w.Now() })
			}
		})
		if d.oneIn(2) {
			crash(w, d, at+d.at(time.Second, time.Minute))
		}
	}
}

// The kubelet looks at the node every ten seconds, and evicts below its default threshold.
const (
	kubeletEvery = 10 * time.Second
	kubeletHard  = 100 * mib
)

// kubelet evicts the pod that uses most and collects garbage, beside the service.
func kubelet(w *World, d dice) {
	w.At(w.Now()+kubeletEvery, func(w *World) { kubelet(w, d) })
	if len(w.images) > 0 && d.oneIn(10) {
		w.logf("the kubelet removes an image")
		w.runtime.Forget(w.images[0].id)
		w.images = w.images[1:]
	}
	if w.available() >= kubeletHard {
		return
	}
	var victim *pod
	for _, p := range w.pods {
		if p.runs() && p.Namespace != "kube-system" && (victim == nil || p.used > victim.used) {
			victim = p
		}
	}
	if victim == nil {
		return
	}
	w.end(victim, "is evicted by the kubelet", 137)
	for _, c := range victim.Containers {
		w.runtime.Exit(c.ID, 137)
	}
}

// sleep lets the machine sleep: only the clock of the boot goes on.
func (w *World) sleep(d time.Duration) {
	w.logf("the machine has slept for %v", d)
	w.slept.Add(int64(d))
	w.sleptAt = append(w.sleptAt, w.Now())
	w.pausedUntil -= d
	w.sleptOff = w.service == nil
	if d >= backoffReset { // a breaker that was open is closed, and what has come to lack since then may take many pods
		if w.innocents = 0; w.available() < w.hard {
			w.innocents = -len(w.pods)
		}
	}
}

// backoffReset is the default of backoff.reset.
const backoffReset = 10 * time.Minute

// unreadable makes meminfo unreadable for a while.
func unreadable(w *World, d dice, at time.Duration) {
	length := d.at(10*time.Millisecond, 3*time.Second)
	w.At(at, func(w *World) {
		w.logf("the memory is unreadable for %v", length)
		w.unread, w.blindUntil = true, max(w.blindUntil, w.Now()+length+seesAgain)
	})
	w.At(at+length, func(w *World) { w.unread = false })
}

// storm wakes the service a hundred times within ten milliseconds.
func storm(w *World, at time.Duration) {
	for i := range time.Duration(100) {
		w.At(at+i*100*time.Microsecond, func(w *World) { w.waker.spurious() })
	}
}
