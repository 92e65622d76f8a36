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
)

// Times of the ladder.
const (
	// pollFirst to pollLast is how often the cgroups are looked at: a killed process
	// is gone within a millisecond, one with gigabytes takes 60 ms for each.
	pollFirst = time.Millisecond
	pollLast  = 20 * time.Millisecond
	// headStart is how long the runtime is told later about what was killed directly. Mostly it
	// has noticed by then.
	headStart = 250 * time.Millisecond
	// rekillEvery repeats a kill for what was forked or thawed since.
	rekillEvery = 200 * time.Millisecond
	// settleFor bounds how long killed processes are waited for before the stop
	// counts as one that did not empty the cgroups.
	settleFor = 10 * time.Second
	// chaseFor bounds how long the runtime is asked for its confirmation.
	chaseFor = time.Minute
)

// maxStopErrors bounds a report.
const maxStopErrors = 16

// leaf is a container and what is known of it.
type leaf struct {
	id   string
	path string // of its cgroup; "" = the runtime's word counts instead

	// Guarded by Stop.mu.
	populated bool // a process was seen in it
	empty     bool // there was none at the last look
	stopped   bool // by the runtime's word
}

// emptied: processes were in it, and are not any more.
func (l *leaf) emptied() bool { return l.populated && l.empty }

// findLeaves takes the container cgroups that may be killed: each below the
// pod's own where that is known, and else named by its container, none of them above
// or the same as another one, and none that leads upwards. A pod's own cgroup holds
// what the runtime itself runs.
func (s *Stop) findLeaves() []*leaf {
	pod := cleanCgroup(s.req.Cgroup)
	leaves := make([]*leaf, len(s.req.Containers))
	for i, c := range s.req.Containers {
		leaves[i] = &leaf{id: c.ID, path: cleanCgroup(c.Cgroup)}
	}
	for i, l := range leaves {
		if l.path == "" {
			continue
		}
		dots := slices.Contains(strings.Split(s.req.Containers[i].Cgroup, "/"), "..")
		leafOnly := !dots && l.path != "/" && (pod == "" && BearsID(l.path, l.id) || pod != "" && strings.HasPrefix(l.path, strings.TrimSuffix(pod, "/")+"/"))
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
	return leaves
}

// BearsID tells whether a cgroup is named by a container's ID, as runtimes name them: ID,
// runtime-ID, and with the systemd driver runtime-ID.scope.
func BearsID(rel, id string) bool {
	name := strings.TrimSuffix(path.Base(rel), ".scope")
	return id != "" && (name == id || strings.HasSuffix(name, "-"+id))
}

func cleanCgroup(rel string) string {
	if rel == "" {
		return ""
	}
	return path.Clean("/" + rel)
}

// run goes down the ladder, and talks to the runtime beside it.
func (s *Stop) run(ctx context.Context) {
	defer close(s.finished)
	ctx, cancel := context.WithTimeout(ctx, s.req.Grace+s.req.StopTimeout+chaseFor)
	defer cancel()
	var talk sync.WaitGroup
	talk.Go(func() {
		s.yield(ctx)
		s.converse(ctx)
	})
	s.watch(ctx)
	if r := s.Report(); r.Nothing && !r.Confirmed {
		cancel() // what was given up kills nobody later, uncounted
	}
	close(s.done)
	talk.Wait()
}

// yield leaves the CPU to processes that were killed directly. What the runtime, its shim
// and its helpers burn on a stop would keep them from their end: those of a BestEffort
// pod have the smallest share of the CPU there is. And a runtime that is told of an end before it
// has noticed starts one more program to kill what is dead.
func (s *Stop) yield(ctx context.Context) {
	if !s.killed() {
		return
	}
	select {
	case <-time.After(headStart):
	case <-ctx.Done():
	}
}

// watch looks at the cgroups until they are empty, and kills them when that
// takes too long.
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
}

// kill sends SIGKILL to every container cgroup that is not known to be empty,
// in the calling goroutine.
func (s *Stop) kill(by Method) {
	for _, l := range s.leaves {
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
	}
}

// look reads the cgroups that are not known to be empty and reports whether all
// containers have ended.
func (s *Stop) look() bool {
	for _, l := range s.leaves {
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
	// Of a sandbox without containers, only the runtime can tell the end.
	ended := len(s.leaves) > 0 || s.report.Confirmed
	for _, l := range s.leaves {
		ended = ended && s.hasEnded(l)
	}
	if ended && !s.report.Emptied {
		s.report.Emptied, s.report.EmptiedAfter = true, time.Since(s.started)
	}
	return ended
}

// lookElsewhere notes whether the pod has processes, where its containers' cgroups have
// none. Whatever they are, it is this stop that ends them.
func (s *Stop) lookElsewhere() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := cleanCgroup(s.req.Cgroup); pod != "" && !s.seen() {
		s.alive, _ = s.cgroups.Populated(pod)
	}
}

func (s *Stop) giveUp() {
	s.mu.Lock()
	open := 0
	for _, l := range s.leaves {
		if !s.hasEnded(l) {
			open++
		}
	}
	s.mu.Unlock()
	s.note(fmt.Errorf("stop %s: %d of %d containers have not ended", s.req.Pod, open, len(s.leaves)))
}

func (s *Stop) isEmptied(l *leaf) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.emptied()
}

// hasEnded tells whether a container has ended; s.mu is held. An empty cgroup says so
// where processes were seen in any of the pod's. Where none ever were, they may be
// elsewhere, in a virtual machine, in a kernel of the sandbox's own or in a container that
// was started since it was listed: the runtime's word on the whole sandbox counts.
func (s *Stop) hasEnded(l *leaf) bool {
	if l.path == "" {
		return l.stopped
	}
	return l.empty && (s.seen() || s.report.Confirmed)
}

// seen tells whether a process was seen in any container's cgroup; s.mu is held.
func (s *Stop) seen() bool {
	return slices.ContainsFunc(s.leaves, func(l *leaf) bool { return l.populated })
}

// isBare tells that all cgroups are empty and always were, the pod's own as well: there is
// nothing to settle, but the runtime has not confirmed.
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

// note keeps an error for the report, once.
func (s *Stop) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(e error) bool { return e.Error() == err.Error() }
	if len(s.report.Errors) < maxStopErrors && !slices.ContainsFunc(s.report.Errors, same) {
		s.report.Errors = append(s.report.Errors, err)
	}
}
