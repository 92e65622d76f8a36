package world

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/node/nodetest"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// How long a kill takes before memory comes back, and for each GiB.
const (
	killDelay  = 15 * time.Millisecond
	killPerGiB = 57 * time.Millisecond
)

// pidMax is the number of tasks that the kernel allows at first.
const pidMax = 32768

// nodeTasks is the number of tasks outside of the pods.
const nodeTasks = 200

// kernel is the files of a node, in a procfs and a sysfs of its own.
type kernel struct {
	tb        testing.TB
	root      string // contains proc and sys
	overlays  bool   // the root filesystems of containers are mounted
	files     map[string]*file
	uses      map[string]uses // by cgroup
	capacity  int64           // bytes
	cache     int64           // bytes of page cache that can be reclaimed
	outside   int64           // bytes used outside the pods
	noise     int64           // more of them, which come and go
	uncharged int64           // more of them, which the kernel holds and charges to no cgroup
	hog       int64           // bytes per second that a process outside the pods takes
	hogTook   int64           // bytes that it holds
	taskLimit int64           // pid_max
	podTasks  int64           // pids.max of the pods cgroup; 0 = none
	pods      []*pod
	out       bool // memory ran out
	unread    bool // meminfo is unreadable
	waker     *waker
	deaf      bool // the wakers report no event
	overflows bool // and lose what has changed
	v1        bool // cgroup v1
	flat      bool // with memory.use_hierarchy off: the memory of a cgroup does not include that of those below it
	disk      disk
	swap      int64 // bytes of swap; 0 = none
	stalls

	stopping  chan struct{} // see stopBegins
	mu        sync.Mutex
	signaled  map[string]bool  // cgroups whose processes were killed
	mounts    map[string]mount // by sandbox
	stops     map[string]bool  // containers that the runtime was asked to stop
	slowStops time.Duration    // how long the runtime takes to begin a stop, at most
}

// pod is a pod on the kernel and the runtime.
type pod struct {
	critest.Pod
	spec        critest.PodSpec
	used        int64 // bytes of memory, in its first container
	swapped     int64 // bytes of swap
	limit       int64 // bytes at which the kernel kills it; 0 = none
	rate        int64 // bytes per second that it takes
	most        int64 // bytes of memory and swap at which it takes no more; 0 = no end
	tasks       int64
	forks       int64   // tasks per second that it starts
	writes      int64   // bytes per second that it writes to the disk
	toVolume    float64 // the share of that which goes to its volume
	root        bool    // it may use the disk's reserve
	toLog       float64 // the share of the rest which goes to its log
	fileSize    int64   // bytes of each file that it writes; 0 = a few large ones
	wrote       space   // in its writable layer
	few         bool    // it was stopped for tasks, and had so few that one elsewhere decides whether the stop was fruitless
	diskLimit   int64   // bytes on the disk above which the service stops it; 0 = none
	flushes     int64   // bytes of memory per second that it takes while it is being stopped for that
	kept        int64   // bytes in its volume and its log when it was
	linger      time.Duration
	hangs       bool          // its shim does or did: what it has on the disk may stay
	shared      float64       // the share of its memory that is in files
	unmounting  time.Duration // how long the runtime takes for these
	unmounted   bool
	run         int           // of the service that stopped it
	returns     time.Duration // after this long a stopped pod is back; 0 = never
	asked       bool          // an operator asked for its stop
	order       order         // what the service stopped it for
	direct      bool          // through its cgroup
	sinceOrder  time.Duration // when it was killed
	protected   bool
	protectedAt time.Duration // by an operator
	leaks       time.Time     // since when
	killed      time.Time
	stoppedAt   time.Duration // at this time of the world, with what the machine slept
	atKill      int64
	expected    int64 // what the service expects of its stop, at most
	ended       time.Duration
	gone        bool     // it has no process left
	jobEnded    bool     // by itself, or by its limit
	exitCode    int32    // then
	written     [4]int64 // what its files say of memory, that in files, swap and tasks
}

func (p *pod) String() string { return p.Namespace + "/" + p.Name }

// isDying reports whether it was killed and still uses something.
func (p *pod) isDying() bool { return !p.killed.IsZero() && !p.gone }

// runs reports whether it runs undisturbed.
func (p *pod) runs() bool { return p.killed.IsZero() && !p.gone }

func newKernel(tb testing.TB, root string, v1 bool, capacity int64) *kernel {
	tb.Helper()
	k := &kernel{tb: tb, v1: v1, capacity: capacity, taskLimit: pidMax, root: root, waker: newWaker(v1), files: map[string]*file{}, uses: map[string]uses{}, signaled: map[string]bool{}, mounts: map[string]mount{}, stops: map[string]bool{}, stopping: make(chan struct{}, 1)}
	self := "0::/\n"
	if v1 {
		self = "2:pids:/\n1:memory:/\n"
	}
	boot := map[string]string{
		"proc/loadavg":                             "0.00 0.00 0.00 1/100 1000\n",
		pidMaxFile:                                 "",
		"proc/sys/kernel/random/boot_id":           "3f7e1d2c-0000-0000-0000-000000000000\n",
		stallFiles[onMemory]:                       nodetest.Stall(0),
		stallFiles[onIO]:                           nodetest.Stall(0),
		"proc/self/cgroup":                         self,
		"proc/meminfo":                             "",
		"sys/devices/system/cpu/online":            "0\n",
		fmt.Sprintf("proc/%d/cgroup", os.Getpid()): self,
	}
	if !v1 {
		boot["sys/fs/cgroup/cgroup.controllers"] = "memory pids\n"
	}
	for _, name := range slices.Sorted(maps.Keys(boot)) {
		k.mkdirAll(filepath.Dir(name))
		k.create(name, boot[name])
	}
	if v1 {
		k.mkdirAll(k.memory("/", ""))
		k.mkdirAll(k.tasks("/", ""))
		k.makeFiles("/", true)
	}
	k.mkdir(podsCgroup)
	k.makeFiles(podsCgroup, false)
	return k
}

// pidMaxFile has the task limit.
const pidMaxFile = "proc/sys/kernel/pid_max"

// podsCgroup is the cgroup of all pods.
const podsCgroup = "/kubepods"

// add adds the cgroups of a pod.
func (k *kernel) add(p *pod) {
	k.tb.Helper()
	k.pods = append(k.pods, p)
	k.mount(p)
	k.makePodDirs(p)
	k.mkdir(p.CgroupParent)
	k.makeFiles(p.CgroupParent, false)
	for _, c := range p.Containers {
		k.mkdir(c.Cgroup)
		k.makeFiles(c.Cgroup, true)
	}
}

// available is what is left of the memory.
func (k *kernel) available() int64 {
	return k.capacity - k.outside - k.noise - k.uncharged - k.podsUse()
}

// freeTasks is what is left of the tasks, negative if a limit was lowered below those that run.
func (k *kernel) freeTasks() int64 {
	tasks := k.podsTasks()
	free := k.taskLimit - nodeTasks - tasks
	if k.podTasks > 0 {
		free = min(free, k.podTasks-tasks)
	}
	return free
}

func (k *kernel) podsTasks() (sum int64) {
	for _, p := range k.pods {
		sum += p.tasks
	}
	return sum
}

func (k *kernel) podsUse() (sum int64) {
	for _, p := range k.pods {
		sum += p.used
	}
	return sum
}

// writeAll brings the files up to date.
func (k *kernel) writeAll() {
	available := max(k.available(), 0)
	cache := min(k.cache, available)
	kb := func(n int64) int64 { return n >> 10 }
	if k.unread {
		k.write(k.files["proc/meminfo"], "MemTotal: none\n")
	} else {
		k.write(k.files["proc/meminfo"], "MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB\nInactive(file): %d kB\nSwapTotal: %d kB\nSwapFree: %d kB\n",
			kb(k.capacity), kb(available-cache), kb(available), kb(cache), kb(k.swap), kb(k.freeSwap()))
	}
	for r := range resources {
		total := k.total[r].Microseconds()
		k.write(k.files[stallFiles[r]], stallText, total, total)
	}
	k.write(k.files["proc/loadavg"], "0.00 0.00 0.00 1/%d 1000\n", nodeTasks+k.podsTasks())
	k.write(k.files[pidMaxFile], "%d\n", k.taskLimit)
	for _, p := range k.pods {
		if now := [4]int64{p.used, p.inFiles(), p.swapped, p.tasks}; p.written != now {
			p.written = now
			k.writeUse(p.CgroupParent, k.below(now))
			if !p.gone {
				k.writeUse(p.Containers[0].Cgroup, now)
			}
		}
	}
	pods := k.below([4]int64{k.podsUse(), 0, k.swap - k.freeSwap(), k.podsTasks()})
	k.writeUse(podsCgroup, pods)
	if k.v1 {
		used := k.capacity - available + cache - k.uncharged
		k.write(k.uses["/"].memory, "%d\n", used)
		k.waker.cross("/", used)
		k.waker.cross(podsCgroup, pods[0])
	}
}

// below returns what a cgroup without processes counts of what those below it use: memory, that in files, swap and tasks.
func (k *kernel) below(use [4]int64) [4]int64 {
	if k.flat {
		return [4]int64{3: use[3]}
	}
	return use
}

// writeUse writes what a cgroup uses: memory, that in files, swap and tasks.
func (k *kernel) writeUse(rel string, use [4]int64) {
	memory, shared, swap, tasks := use[0], use[1], use[2], use[3]
	u := k.uses[rel]
	k.write(u.memory, "%d\n", memory)
	k.write(u.tasks, "%d\n", tasks)
	if k.v1 {
		k.write(u.stat, k.statFormat(), memory-shared, shared, swap)
		return
	}
	k.write(u.swap, "%d\n", swap)
	k.write(u.stat, k.statFormat(), memory-shared, shared, shared, memory)
}

// How much memory the kernel keeps free by moving pages to swap, and how fast it does so. Whoever takes the last of it
// waits for that.
const (
	keptFree  = 32 * mib
	lastFree  = 8 * mib
	swapSpeed = 800 * mib // per second
)

// freeSwap is what is left of the swap.
func (k *kernel) freeSwap() int64 {
	free := k.swap
	for _, p := range k.pods {
		free -= p.swapped
	}
	return free
}

// swapOut lets d pass for the kernel, which moves pages to swap if too little memory is free: those of pods that take nothing
// first. A fifth of each pod's pages is in use. Half of what it needs, it takes from the page cache. It returns the share of the
// time in which tasks wait for that: those that take memory, once there is no page cache.
func (k *kernel) swapOut(d time.Duration) (waiting float64) {
	short := keptFree - (k.available() - min(k.cache, max(k.available(), 0)))
	if k.swap == 0 || short <= 0 || d == 0 {
		return 0
	}
	out := max(min(short, int64(swapSpeed*d.Seconds())), lastFree-k.available())
	if k.cache > 0 && k.available() > lastFree {
		fromCache := min(k.cache, out/2)
		k.cache, out = k.cache-fromCache, out-fromCache
	}
	out = min(out, k.freeSwap())
	if k.cache == 0 {
		waiting = min(float64(out)/(swapSpeed*d.Seconds()), 1)
	}
	for _, takes := range []bool{false, true} {
		for _, p := range k.pods {
			if n := min(out, p.used-(p.used+p.swapped)/5); n > 0 && p.runs() && takes == (p.rate > 0) {
				p.used, p.swapped, out = p.used-n, p.swapped+n, out-n
			}
		}
	}
	return waiting
}

// isKilled reports whether the service has killed one of the pod's containers through its cgroup.
func (k *kernel) isKilled(p *pod, container int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.signaled[p.Containers[container].Cgroup]
}

// cgroups are the cgroups of a service, which tell the kernel what was killed. It implements [reclaim.Cgroups].
type cgroups struct {
	cgroup.Layout
	kernel *kernel
	root   string // of the kernel's files when the service began
}

// Kill implements [reclaim.Cgroups]. On v1, a process would have to exist to be killed.
func (c cgroups) Kill(rel string) (n int, err error) {
	k := c.kernel
	if n = 1; !k.v1 {
		n, err = c.Layout.Kill(rel)
	} else if ok, err := c.Populated(rel); !ok || err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.root == c.root {
		k.signaled[rel] = true
		k.stopBegins()
	}
	return n, err
}

// grow lets d pass for what takes memory and tasks.
func (k *kernel) grow(d time.Duration) {
	of := func(perSecond int64) int64 { return int64(float64(perSecond) * d.Seconds()) }
	k.outside, k.hogTook = k.outside+of(k.hog), k.hogTook+of(k.hog)
	for _, p := range k.pods {
		if p.runs() {
			if p.forks > 0 {
				p.tasks += max(min(of(p.forks), k.freeTasks()), 0)
			}
			if p.writes > 0 {
				k.disk.fill(p, of(p.writes))
			}
			if p.used += of(p.rate); p.limit > 0 {
				p.used = min(p.used, p.limit)
			}
			if p.most > 0 && p.used+p.swapped >= p.most {
				p.used, p.rate, p.most = p.most-p.swapped, 0, 0
			}
		}
	}
}

// shrink frees what the processes of killed pods used, and returns the pods whose processes have ended.
func (k *kernel) shrink(now time.Time) (ended []*pod) {
	for _, p := range k.pods {
		if !p.isDying() {
			continue
		}
		freeing := now.Sub(p.killed) - killDelay - p.linger
		if freeing < 0 {
			continue
		}
		p.tasks, p.swapped = 0, 0
		left := p.inFiles()
		if p.used = max(p.atKill-int64(float64(freeing)/float64(killPerGiB)*gib), left); p.used == left {
			p.gone = true
			ended = append(ended, p)
		}
	}
	return ended
}

// pause returns for how long the kernel may be left alone: until the memory or the tasks have changed by as much as
// matters to a decision.
func (k *kernel) pause() time.Duration {
	rate, forks, writes := k.hog, int64(0), int64(0)
	for _, p := range k.pods {
		if p.isDying() {
			return shortStep
		}
		if p.runs() {
			rate, forks, writes = rate+p.rate, forks+p.forks, writes+p.writes
		}
	}
	until := func(amount, perSecond int64) time.Duration {
		return time.Duration(float64(amount) / float64(max(perSecond, 1)) * float64(time.Second))
	}
	longest := longStep
	if k.slowed != [resources]float64{} {
		longest = watchStep
	}
	return max(min(until(2*mib, rate), until(50, forks), until(64*mib, writes), longest).Truncate(time.Millisecond), shortStep)
}
