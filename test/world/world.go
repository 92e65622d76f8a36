package world

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/history"
)

// How far the world lets time pass in one step: at most, while a stop may begin, and at least.
const (
	longStep  = time.Second
	watchStep = 50 * time.Millisecond
	shortStep = 5 * time.Millisecond
)

// noticeDelay is how long the runtime takes to notice that a container has ended.
const noticeDelay = 3100 * time.Microsecond

// nodeProcessors is how many processors the node has.
const nodeProcessors = 4

// World is a node in virtual time, in a bubble of testing/synctest.
type World struct {
	*kernel
	*story
	check
	tracer   tracer
	tb       testing.TB
	dir      string
	dirs     int      // made in it
	settings []string // lines of the configuration
	plan     []event  // what is still to come, in order
	runtime  *critest.Server
	socket   *pipe          // where the runtime listens
	service  *service       // nil = none runs
	services []*service     // all of them
	state    string         // the directory of the last one
	asking   sync.WaitGroup // commands without an answer
	images   []image        // that no pod uses
	garbage  []*garbage
	kubelet  bool          // one restarts pods under their UIDs
	away     bool          // the runtime does not run
	askedAt  time.Duration // when the service was last asked to end
	drained  bool          // an operator has every pod stopped
	sleptAt  []time.Duration
	sleptOff bool         // while no service ran
	naps     *dice        // of sleeps while a disk deletes files; nil = none
	uses     atomic.Int64 // so many processors at a time
	visits   chan func(*World)
	awake    awake
}

// stopBegins ends the world's step: something is killed, or the runtime was asked for it.
func (k *kernel) stopBegins() {
	select {
	case k.stopping <- struct{}{}:
	default:
	}
}

// event is what happens to a world at a time after its beginning.
type event struct {
	at time.Duration
	do func(*World)
}

// New returns a world with cgroup v1 or v2 and so many bytes of memory, without pods and service. The lines are its configuration.
func New(tb testing.TB, v1 bool, capacity int64, d critest.Dialect, lines ...string) *World {
	tb.Helper()
	w := &World{story: newStory(), check: check{metAt: map[string]time.Duration{}}, visits: make(chan func(*World)), tb: tb, dir: memoryDir(tb), settings: lines}
	w.kernel = newKernel(tb, w.newDir(), v1, capacity)
	w.kernel.overlays = d != critest.CRIO
	w.runtime = critest.New(tb, d, critest.WithSampling(layersSampled), critest.WithLatency(w.latency), critest.WithDeletions(func(id string, bytes, inodes int64) {
		if !w.disk.apart.layers {
			w.disk.deleted.add(id, space{bytes, inodes})
		}
	}), critest.WithListener(func() (net.Listener, error) {
		w.socket = newPipe()
		return w.socket, nil
	}))
	w.disk.runtime, w.disk.total, w.disk.inodes, w.disk.others = w.runtime, 100*gib, 9e6, 1e6
	w.disk.other.Store(50 * gib)
	w.disk.logs.dir = filepath.Join(w.dir, "logs")
	w.hide(w.dir, "")
	w.hide(w.runtime.Endpoint(), "unix:///run/cri.sock")
	w.writeAll()
	return w
}

// layersSampled is how often containerd measures what containers write.
const layersSampled = 10 * time.Second

// memoryDir returns a directory in memory, like the files of the kernel: on a disk, a world takes four times as long.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	sweep()
	dir, err := os.MkdirTemp("/dev/shm", fmt.Sprintf("criguard-test-%d-world-", os.Getpid()))
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// sweep removes the directories in memory of tests that were killed.
var sweep = sync.OnceFunc(func() {
	dirs, _ := filepath.Glob("/dev/shm/criguard-test-*-world-*")
	for _, dir := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), "criguard-test-%d-", &pid); err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			_ = os.RemoveAll(dir)
		}
	}
})

// latency returns how long the runtime takes to answer. Two calls do not take equally long, unless they ask for the same at the
// same time: in which order they arrive is chance, and must make no difference.
func (w *World) latency(c critest.Call) time.Duration {
	w.awake.note(w.Now(), c.Method)
	if strings.HasPrefix(c.Method, "Stop") {
		w.stopBegins()
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, c.Method, " ", c.ID, " ", w.Now())
	takes := time.Duration(0)
	switch c.Method {
	case "StopPodSandbox":
		takes = w.unmount(c.ID, w.Now())
	case "StopContainer":
		takes = w.noteStop(c.ID, h.Sum32())
	}
	return takes + 100*time.Microsecond + time.Duration(h.Sum32()%1_000_000)
}

// newDir makes a directory.
func (w *World) newDir() string {
	w.dirs++
	dir := filepath.Join(w.dir, fmt.Sprint(w.dirs))
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.tb.Fatal(err)
	}
	return dir
}

// Now is the time since the world began.
func (w *World) Now() time.Duration { return time.Since(w.began) }

// Visit lets another goroutine do something to the world between two of its steps. It returns false if the world has ended.
func (w *World) Visit(over <-chan struct{}, do func(*World)) bool {
	done := make(chan struct{})
	visit := func(w *World) {
		do(w)
		synctest.Wait()
		w.writeAll()
		close(done)
	}
	select {
	case w.visits <- visit:
		<-done
		return true
	case <-over:
		return false
	}
}

// At adds an event.
func (w *World) At(at time.Duration, do func(*World)) {
	i := slices.IndexFunc(w.plan, func(e event) bool { return e.at > at })
	if i < 0 {
		i = len(w.plan)
	}
	w.plan = slices.Insert(w.plan, i, event{at, do})
}

// When adds an event that happens once a condition holds. It looks for the first time at a time, and then so often.
func (w *World) When(holds func() bool, at, every time.Duration, do func(*World)) {
	w.At(at, func(w *World) {
		if holds() {
			do(w)
			return
		}
		w.When(holds, w.Now()+every, every, do)
	})
}

// addPod adds a pod to the kernel and the runtime.
func (w *World) addPod(p *pod) *pod {
	w.tb.Helper()
	if len(p.spec.Containers) == 0 {
		p.spec.Containers = []critest.ContainerSpec{{}}
	}
	p.tasks, p.asked = max(p.tasks, 1), w.drained
	p.spec.CreatedAt, p.spec.Logs = time.Now(), w.disk.logs.dir
	p.Pod = w.runtime.AddPod(p.spec)
	w.add(p)
	w.writeAll()
	return p
}

// Run lets time pass. Nothing happens in the world while a goroutine of the service runs.
func (w *World) Run(d time.Duration) {
	for end := w.Now() + d; w.Now() < end && !w.out; {
		pause := w.pause()
		if w.isStopping() {
			pause = min(pause, watchStep)
		}
		// A step never ends at a time that a timer of the service is likely to have, too.
		next := min((w.Now()/pause+1)*pause+137*time.Microsecond, end)
		if len(w.plan) > 0 {
			next = max(min(next, w.plan[0].at), w.Now())
		}
		before, visit := w.Now(), func(*World) {}
		select {
		case <-time.After(next - before):
		case <-w.stopping:
			w.busyUntil = max(w.busyUntil, w.Now()+stopLasts)
		case visit = <-w.visits:
		}
		synctest.Wait() // until the service has done all that it does then
		w.act(w.Now() - before)
		visit(w)
	}
}

// act is one step of the world, after d has passed.
func (w *World) act(d time.Duration) {
	w.grow(d)
	for _, p := range w.pods {
		if p.runs() && p.limit > 0 && p.used == p.limit {
			w.end(p, "is killed by the kernel, at its limit", 137)
		}
	}
	w.flush()
	w.stall(d, w.Now(), w.swapOut(d))
	w.seeStops()
	w.seeUnmounts()
	w.seeLogs()
	for _, p := range w.shrink(time.Now()) {
		w.logf("%s has ended", p)
		p.ended = w.Now()
		w.nap(p)
		w.writeAll()
		for i, c := range p.Containers {
			dead := func() bool { return i == 0 || w.isKilled(p, i) || !w.runtime.Alive(c.ID) }
			empty := func(w *World) {
				w.rmdir(c.Cgroup)
				w.At(w.Now()+noticeDelay, func(w *World) {
					if p.jobEnded {
						w.runtime.Exit(c.ID, p.exitCode)
					} else {
						w.runtime.Kill(c.ID)
					}
				})
			}
			if dead() {
				empty(w)
			} else if !p.jobEnded { // it is being stopped, too
				w.When(dead, w.Now()+watchStep, watchStep, empty)
			}
		}
		if !w.v1 {
			w.write(w.files[w.memory(p.CgroupParent, "cgroup.events")], "populated 0\nfrozen 0\n")
		}
		w.At(w.Now()+stopLasts, func(w *World) { w.ended(w, p) })
		w.At(w.Now()+kubeletUnmounts, func(w *World) { w.unmounted(p) })
		if p.returns > 0 {
			w.At(w.Now()+p.returns, func(w *World) { w.comeBack(p) })
		}
		if !w.keepsVolume(p) {
			w.At(w.Now()+volumeStays, func(w *World) { w.disk.removeVolume(p.UID) })
		}
	}
	w.out = w.out || w.available() <= 0
	w.writeAll()
	w.inspect(w)
	w.tracer.write(w)
	for len(w.plan) > 0 && w.plan[0].at <= w.Now() {
		e := w.plan[0]
		w.plan = w.plan[1:]
		e.do(w)
		synctest.Wait()
		w.writeAll()
	}
}

// isStopping reports whether the service has asked for a stop that has not ended, or may at any moment.
func (w *World) isStopping() bool { return w.Now() < w.busyUntil }

// seeStops finds the pods that died since the last step.
func (w *World) seeStops() {
	for _, p := range w.pods {
		if !p.runs() {
			continue
		}
		direct := w.isKilled(p, 0)
		if !direct && w.runtime.Alive(p.Containers[0].ID) {
			continue
		}
		p.killed, p.atKill, p.expected, p.run = time.Now(), p.used, p.used+p.swapped, len(w.services)
		p.order, p.direct = w.orderOf(p.UID), direct
		p.sinceOrder = w.Now() - p.order.at
		w.stopped(w, p, direct)
	}
}

// volumeStays is how long the volume of a pod stays that is not started again: a kubelet looks every two seconds.
const volumeStays = 2 * time.Second

// keepsVolume reports whether a kubelet starts the pod again after its end, and so keeps its volume.
func (w *World) keepsVolume(p *pod) bool { return w.kubelet && p.returns > 0 }

// end ends a pod without a stop. The kernel frees the memory of a process before anybody sees that it has ended.
func (w *World) end(p *pod, how string, code int32) {
	w.logf("%s %s", p, how)
	p.jobEnded, p.exitCode = true, code
	p.killed, p.atKill, p.expected, p.run = time.Now(), p.used, p.used+p.swapped, len(w.services)
}

// comeBack starts a pod again under its name, as a controller does.
func (w *World) comeBack(old *pod) {
	if w.away {
		w.At(w.Now()+time.Second, func(w *World) { w.comeBack(old) })
		return
	}
	if w.kubelet && w.hasMounts(old) {
		w.unmount(old.ID, w.Now())
		w.When(func() bool { return !w.hasMounts(old) }, w.Now(), watchStep, func(w *World) {
			w.At(w.Now()+kubeletStarts, func(w *World) { w.comeBack(old) })
		})
		return
	}
	spec := old.spec
	spec.ID, spec.CgroupParent = "", ""
	if spec.UID = ""; w.kubelet {
		spec.UID = old.UID
		spec.Attempt++
	}
	w.unmounted(old)
	w.runtime.Forget(old.ID)
	w.rmdir(old.CgroupParent)
	w.removePodDirs(old)
	synctest.Wait()
	p := w.addPod(&pod{spec: spec, used: 10 * mib, limit: old.limit, rate: old.rate, forks: old.forks, writes: old.writes, toVolume: old.toVolume, returns: old.returns, protected: old.protected, linger: old.linger, shared: old.shared, unmounting: old.unmounting, diskLimit: old.diskLimit, flushes: old.flushes, fileSize: old.fileSize, root: old.root, toLog: old.toLog})
	if p.rate == p.flushes {
		p.rate = 0
	}
	if p.rate > 0 || p.forks > 0 || p.writes > 0 {
		p.leaks = time.Now()
	}
	w.logf("%s comes back", p)
}

// Close ends everything that runs.
func (w *World) Close() {
	w.tb.Helper()
	w.ask(w)
	w.Stop()
	for _, s := range w.services {
		if s.cut {
			if err := <-s.ended; err != nil {
				w.logf("the service that was killed would have ended with an error: %v", err)
			}
		}
	}
	time.Sleep(w.disk.walk) // a measurement outlives the service
	w.runtime.Stop()
	w.asking.Wait()
	w.kernel.close()
	if w.tracer.err != nil {
		w.tb.Error(w.tracer.err)
	}
	for _, name := range w.openFiles() {
		w.violate("%s is still open", name)
	}
}

// openFiles returns the files of the world that this process has open.
func (w *World) openFiles() (names []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		w.tb.Fatal(err)
	}
	for _, fd := range fds {
		// Another world may close one meanwhile.
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, w.dir+"/") {
			names = append(names, name)
		}
	}
	return names
}

// Stops returns the stops in the history on disk, in order, with their results.
func (w *World) Stops() (stops []api.StopView) {
	w.tb.Helper()
	type begun struct { // a sandbox that keeps its name may be stopped again
		pass    uint64
		sandbox string
	}
	results := map[begun]*api.StopResult{}
	for _, p := range w.passesOnDisk() {
		if p.Stop != nil {
			stops = append(stops, *p.Stop)
		}
		for i := range p.Settled {
			results[begun{p.Settled[i].Pass, p.Settled[i].Sandbox}] = p.Settled[i].Result
		}
	}
	for i := range stops {
		stops[i].Result = results[begun{stops[i].Pass, stops[i].Sandbox}]
	}
	return stops
}

// passesOnDisk returns the history on disk.
func (w *World) passesOnDisk() []api.Pass {
	w.tb.Helper()
	list, err := history.Read(context.Background(), w.state, api.HistoryQuery{})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.tb.Fatal(err)
	}
	return list.Passes
}

// inTurn checks a history over all runs of the service: the numbers of the passes rise, and outages of the runtime begin and end in
// turn. It reports whether none has still to end.
func (w *World) inTurn(passes []api.Pass) (up bool) {
	last := uint64(0)
	up = true
	for _, p := range passes {
		if p.ID <= last {
			w.violate("the history has pass %d after pass %d", p.ID, last)
		}
		if last = p.ID; p.Runtime == nil {
			continue
		}
		if p.Runtime.Up == up {
			w.violate("pass %d has an outage of the runtime that begins or ends again", p.ID)
		}
		up = p.Runtime.Up
	}
	return up
}

// copyTree copies the files below a directory with their permissions.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), info.Mode().Perm())
		case !info.Mode().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, info.Mode().Perm())
	})
}
