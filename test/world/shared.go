package world

import (
	"slices"
	"time"
)

// A pod's files in memory, such as those in its /dev/shm, outlive its processes. The runtime unmounts them while it stops the
// sandbox, which a kubelet asks for, too, some time after the processes have ended.
const kubeletUnmounts = 5 * time.Second

// kubeletStarts is how long a kubelet takes to start a pod again after the runtime has stopped its sandbox, for which it waits.
const kubeletStarts = 100 * time.Millisecond

// sharedOf lets some pods have a part of their memory in files, and the runtime be late with them, in one of four seeds. It has
// dice of its own.
func sharedOf(w *World, seed uint64) {
	d := diceOf(seed, 29)
	if !d.oneIn(4) || w.flat { // nothing says which files in memory a pod has
		return
	}
	for _, p := range w.pods {
		if d.oneIn(3) {
			p.shared, p.unmounting = 0.3+0.65*d.Float64(), d.at(10*time.Millisecond, pick(d, 300*time.Millisecond, 700*time.Millisecond, 3*time.Second))
			w.mount(p)
		}
	}
}

// inFiles returns how much of a pod's memory is in files.
func (p *pod) inFiles() int64 {
	switch {
	case p.gone:
		return p.used
	case p.unmounted:
		return 0
	case p.killed.IsZero():
		return int64(float64(p.used) * p.shared)
	default:
		return int64(float64(p.atKill) * p.shared)
	}
}

// mount mounts a pod's files in memory, if it has some.
func (k *kernel) mount(p *pod) {
	if p.shared > 0 {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.mounts[p.ID] = mount{takes: p.unmounting}
	}
}

// unmount begins to unmount the files of a sandbox that the runtime was asked to stop, and returns how long the runtime takes to
// answer. The files are gone just before.
func (k *kernel) unmount(sandbox string, now time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, ok := k.mounts[sandbox]
	if !ok {
		return 0
	}
	if m.asked == 0 {
		m.asked = now
		k.mounts[sandbox] = m
	}
	return max(m.takes-(now-m.asked), 0) + time.Millisecond
}

// mount is the files in memory of a sandbox.
type mount struct {
	asked time.Duration // when the runtime was first asked to stop it; 0 = not yet
	takes time.Duration
	seen  bool // the world knows that
}

// seeUnmounts lets the files be gone that the runtime has begun to unmount.
func (w *World) seeUnmounts() {
	for _, p := range w.pods {
		w.kernel.mu.Lock()
		m := w.mounts[p.ID]
		if begins := m.asked > 0 && !m.seen; begins {
			m.seen = true
			w.mounts[p.ID] = m
			w.At(m.asked+m.takes, func(w *World) { w.unmounted(p) })
		}
		w.kernel.mu.Unlock()
	}
}

// unmounted gives back the memory in files of a pod whose processes have ended, or will have.
func (w *World) unmounted(p *pod) {
	if p.unmounted = true; p.gone && p.used > 0 {
		w.logf("the files in memory of %s are gone: %d MiB", p, p.used/mib)
		p.used = 0
		w.writeAll()
	}
}

// hasMounts reports whether the runtime has not stopped the sandbox of a pod that has files in memory.
func (w *World) hasMounts(p *pod) bool { return p.shared > 0 && !p.unmounted }

// awaitsUnmount reports whether only files in memory are left of a pod.
func (p *pod) awaitsUnmount() bool { return p.gone && p.used > 0 }

// sharedWait is how long the next stop for memory waits for the files of a stopped pod at least, if the runtime does not
// answer before and they are most of what it used.
const sharedWait = time.Second

// inspectShared notes that memory may run out while files in memory are not gone.
func (c *check) inspectShared(w *World) {
	for _, p := range w.pods {
		if !p.awaitsUnmount() {
			continue
		}
		c.lateUntil = w.Now() + 2*sharedWait
		if w.Now()-p.ended > sharedWait { // the stop counts as fruitless
			c.weak = c.weak || slices.ContainsFunc(w.pods, func(leak *pod) bool { return leak.rate > 0 })
		}
	}
}
