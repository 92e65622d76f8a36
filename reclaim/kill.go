package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// Times of a stop's escalation.
const (
	// pollFirst to pollLast is the interval at which a stop reads the cgroups. A killed process is gone
	// within a millisecond; each gigabyte takes it 60 ms longer.
	pollFirst = time.Millisecond
	pollLast  = 20 * time.Millisecond
	// headStart delays the first call to the runtime after a direct kill at most.
	headStart = 250 * time.Millisecond
	// rekillEvery is the interval between kills, for processes that were forked or thawed since.
	rekillEvery = 200 * time.Millisecond
	// settleFor limits the wait for killed processes. After that, the stop has failed to empty the
	// cgroups.
	settleFor = 10 * time.Second
	// chaseFor limits how long a stop asks the runtime for its confirmation.
	chaseFor = time.Minute
)

// maxStopErrors limits the errors in a report.
const maxStopErrors = 16

// leaf is a container and its known state.
type leaf struct {
	id   string // "" = unknown to the runtime
	path string // of its cgroup; "" = unknown, so the runtime's report counts instead

	// Guarded by Stop.mu.
	populated bool // a process was seen in it
	empty     bool // the last look saw no process
	stopped   bool // as reported by the runtime
}

// emptied reports whether processes were seen in the cgroup and have since ended.
func (l *leaf) emptied() bool { return l.populated && l.empty }

// findLeaves selects the container cgroups that may be killed. Each must be named after its container,
// below the pod's cgroup if that is known, not equal to or above another container's, and without "..":
// the pod's own cgroup also contains the runtime's processes. A container without such a cgroup is
// stopped through the runtime alone.
func (s *Stop) findLeaves() []*leaf {
	pod := cleanCgroup(s.req.Cgroup)
	leaves := make([]*leaf, 0, len(s.req.Containers)+len(s.req.Unlisted))
	for _, c := range s.req.Containers {
		leaves = append(leaves, &leaf{id: c.ID, path: cleanCgroup(c.Cgroup)})
	}
	for i, l := range leaves {
		if l.path == "" {
			continue
		}
		dots := slices.Contains(strings.Split(s.req.Containers[i].Cgroup, "/"), "..")
		leafOnly := !dots && l.path != "/" && isLeafOf(pod, l.path, l.id)
		for j, other := range s.req.Containers {
			o := cleanCgroup(other.Cgroup)
			leafOnly = leafOnly && (i == j || o != l.path && !strings.HasPrefix(o, l.path+"/"))
		}
		if !leafOnly {
			s.note(fmt.Errorf("stop %s: cgroup %q of container %s is not that of one container: not killed directly",
				s.req.Pod, s.req.Containers[i].Cgroup, s.req.Containers[i].Name))
			l.path = ""
		}
	}
	return append(leaves, unlistedLeaves(pod, s.req.Unlisted)...)
}

// unlistedLeaves returns the leaves of containers that the runtime does not list. The monitor of a container ends with it.
func unlistedLeaves(pod string, rels []string) (leaves []*leaf) {
	for _, rel := range rels {
		if rel = cleanCgroup(rel); pod != "" && path.Dir(rel) == pod && !strings.Contains(path.Base(rel), "conmon") {
			leaves = append(leaves, &leaf{path: rel})
		}
	}
	return leaves
}

// add adds containers that have started since the stop began.
func (s *Stop) add(unlisted []string) {
	more := unlistedLeaves(cleanCgroup(s.req.Cgroup), unlisted)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range more {
		if !slices.ContainsFunc(s.leaves, func(o *leaf) bool { return o.path == l.path }) {
			s.leaves = append(slices.Clip(s.leaves), l)
		}
	}
}

// all returns the leaves, of which there may be more later.
func (s *Stop) all() []*leaf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaves
}

// isLeafOf reports whether a cgroup belongs to a container: its name has the ID or, if the pod's cgroup
// is known, the name one level below that one does. crun puts the processes one level lower.
func isLeafOf(pod, rel, id string) bool {
	if pod == "" {
		return cri.IsContainerCgroup(rel, id)
	}
	below, ok := strings.CutPrefix(rel, strings.TrimSuffix(pod, "/")+"/")
	name, _, _ := strings.Cut(below, "/")
	return ok && cri.IsContainerCgroup(name, id)
}

func cleanCgroup(rel string) string {
	if rel == "" {
		return ""
	}
	return path.Clean("/" + rel)
}

// run watches and kills the cgroups while it talks to the runtime in parallel.
func (s *Stop) run(ctx context.Context) {
	defer close(s.finished)
	ctx, cancel := context.WithTimeout(ctx, s.req.Grace+s.req.StopTimeout+chaseFor)
	defer cancel()
	var talk sync.WaitGroup
	talk.Go(func() {
		s.yield(ctx)
		s.stopByRuntime(ctx)
	})
	s.watch(ctx)
	s.noteShared()
	if r := s.Report(); r.Nothing && !r.Confirmed {
		cancel() // a stop that was given up must not kill later, uncounted
	}
	s.finish()
	talk.Wait()
}

// finish closes done.
func (s *Stop) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = len(s.report.Errors)
	close(s.done)
}

// yield leaves the CPU to processes that were killed directly, so that they can exit: those of a
// BestEffort pod have the smallest CPU share, and a stop costs the runtime, its shim and its helpers
// much CPU. It does not wait longer: until the sandbox is stopped, a kubelet may restart a container in it.
func (s *Stop) yield(ctx context.Context) {
	if !s.killed() {
		return
	}
	select {
	case <-time.After(headStart):
	case <-s.done:
	case <-ctx.Done():
	}
}

// watch polls the cgroups until they are empty, and kills them if that takes too long. Then it ends the sandbox.
func (s *Stop) watch(ctx context.Context) {
	fallback := s.started.Add(s.req.Grace + s.req.StopTimeout)
	lastKill := s.started
	escalated := s.escalated
	wait := pollFirst
	for !s.look() {
		now := time.Now()
		if late := now.Sub(fallback); late >= settleFor || late >= 0 && s.isBare() {
			s.giveUp()
			return
		}
		late := s.req.Fallback && !now.Before(fallback)
		if s.isKilling() && now.Sub(lastKill) >= rekillEvery || late && !s.isKilling() {
			s.kill(ByFallback)
			lastKill, wait = now, pollFirst
		}
		select {
		case <-ctx.Done():
			s.note(fmt.Errorf("stop %s: %w", s.req.Pod, ctx.Err()))
			return
		case <-escalated:
			escalated, now = nil, time.Now()
			if soon := now.Add(s.req.StopTimeout); soon.Before(fallback) {
				fallback = soon
			}
			lastKill, wait = now, pollFirst
		case <-s.news:
			wait = pollFirst
		case <-time.After(wait):
			wait = min(2*wait, pollLast)
		}
	}
	if s.req.Fallback && !s.killed() {
		s.killSandbox()
	}
}

// kill sends SIGKILL to every container cgroup that is not known to be empty, and then to the sandbox's own container. It
// runs in the calling goroutine.
func (s *Stop) kill(by Method) {
	killed := false
	for _, l := range s.all() {
		if s.isEmptied(l) || l.path == "" {
			continue
		}
		n, err := s.cgroups.Kill(l.path)
		if n == 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.mu.Lock()
		s.killing = true
		if s.report.Method == ByRuntime {
			s.report.Method = by
		}
		s.report.Killed += n
		s.acted = s.acted || n > 0
		l.populated = l.populated || n > 0
		s.mu.Unlock()
		if err != nil {
			s.note(fmt.Errorf("kill cgroup %s: %w", l.path, err))
		}
		killed = killed || n > 0
	}
	if killed {
		s.killSandbox()
	}
}

// killSandbox sends SIGKILL to the sandbox's own container, whose process only keeps the pod's namespaces. Otherwise a
// kubelet may find a container dead and the sandbox alive, and restart the container in it; the runtime then stops both, and
// the log of the container that was stopped is lost. If no container had a process in its cgroup, the sandbox's may be a
// virtual machine, which is left to the runtime.
//
// So is a sandbox whose pod has memory in files, such as those in /dev/shm: containerd 2 unmounts that of a sandbox that it
// stops, but that of one that was found dead only when it is removed.
func (s *Stop) killSandbox() {
	s.mu.Lock()
	leaves := s.leaves
	i := slices.IndexFunc(leaves, func(l *leaf) bool { return l.id != "" && l.path != "" && l.populated })
	s.mu.Unlock()
	if i < 0 {
		return
	}
	sandbox := sandboxCgroup(leaves[i], s.req.SandboxID)
	if sandbox == "" || s.keepsSharedMemory(sandbox) {
		return
	}
	if _, err := s.cgroups.Kill(sandbox); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.note(fmt.Errorf("kill cgroup %s: %w", sandbox, err))
	}
}

// sharedAtMost is how much memory in files may remain after a stop until the sandbox is removed, in bytes.
const sharedAtMost = 1 << 20

// keepsSharedMemory reports whether the pod has, or may have, memory in files.
func (s *Stop) keepsSharedMemory(sandbox string) bool {
	n, err := s.cgroups.SharedMemory(path.Dir(sandbox))
	return n > sharedAtMost || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// noteShared records whether the pod has memory in files that comes back only with its sandbox.
func (s *Stop) noteShared() {
	pod := cleanCgroup(s.req.Cgroup)
	if pod == "" {
		return
	}
	n, err := s.cgroups.SharedMemory(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Shared = err == nil && n > sharedAtMost
}

// sandboxCgroup returns the cgroup of the sandbox's own container, which is named like a container's, or "". Some runtimes
// need none.
func sandboxCgroup(l *leaf, sandbox string) string {
	if sandbox != path.Base(sandbox) || strings.Trim(sandbox, ".") == "" {
		return "" // not a name: the path would lead elsewhere
	}
	for rel := l.path; len(rel) > 1; rel = path.Dir(rel) {
		if cri.IsContainerCgroup(rel, l.id) {
			return path.Join(path.Dir(rel), strings.Replace(path.Base(rel), l.id, sandbox, 1))
		}
	}
	return ""
}

// look reads the cgroups that are not known to be empty and reports whether all containers have ended.
func (s *Stop) look() bool {
	for _, l := range s.all() {
		if l.path == "" || s.isEmptied(l) {
			continue
		}
		populated, err := s.cgroups.Populated(l.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.note(fmt.Errorf("look into cgroup %s: %w", l.path, err))
			continue
		}
		populated = populated && err == nil
		s.mu.Lock()
		s.acted = s.acted || l.populated && !populated
		l.populated = l.populated || populated
		l.empty = !populated
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// For a sandbox without containers, only the runtime can confirm the end.
	ended := len(s.leaves) > 0 || s.report.Confirmed
	for _, l := range s.leaves {
		ended = ended && s.hasEnded(l)
	}
	if ended && !s.report.Emptied {
		s.report.Emptied, s.report.EmptiedAfter = true, time.Since(s.started)
	}
	return ended
}

// checkPodCgroup records whether the pod has processes although its containers' cgroups are empty. If
// so, this stop is what ends them.
func (s *Stop) checkPodCgroup() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := cleanCgroup(s.req.Cgroup); pod != "" && !s.seen() {
		s.alive, _ = s.cgroups.Populated(pod)
	}
}

func (s *Stop) giveUp() {
	s.mu.Lock()
	open, all := 0, len(s.leaves)
	for _, l := range s.leaves {
		if !s.hasEnded(l) {
			open++
		}
	}
	s.mu.Unlock()
	s.note(fmt.Errorf("stop %s: %d of %d containers have not ended", s.req.Pod, open, all))
}

func (s *Stop) isEmptied(l *leaf) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.emptied()
}

// hasEnded reports whether a container has ended; s.mu is held. An empty cgroup proves it if any cgroup
// of the pod ever had processes. If none did, they may be elsewhere, such as in a virtual machine, in
// the sandbox's own kernel, or in a container that was started since the listing: then only the
// runtime's confirmation of the whole sandbox counts.
func (s *Stop) hasEnded(l *leaf) bool {
	if l.path == "" {
		return l.stopped
	}
	return l.empty && (s.seen() || s.report.Confirmed)
}

// seen reports whether a process was seen in any container's cgroup; s.mu is held.
func (s *Stop) seen() bool {
	return slices.ContainsFunc(s.leaves, func(l *leaf) bool { return l.populated })
}

// isBare reports whether all cgroups, including the pod's own, are empty and always were. Then there is
// nothing to wait for, except the runtime's confirmation.
func (s *Stop) isBare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.seen() && !s.alive && !slices.ContainsFunc(s.leaves, func(l *leaf) bool { return l.path == "" || !l.empty })
}

func (s *Stop) killed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.Killed > 0
}

func (s *Stop) isKilling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killing
}

// note adds an error to the report, once. That the runtime is not reachable is one error, whichever calls find that.
func (s *Stop) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(e error) bool {
		return e.Error() == err.Error() || errors.Is(e, cri.ErrUnavailable) && errors.Is(err, cri.ErrUnavailable)
	}
	if len(s.report.Errors) < maxStopErrors && !slices.ContainsFunc(s.report.Errors, same) {
		s.report.Errors = append(s.report.Errors, err)
	}
}
