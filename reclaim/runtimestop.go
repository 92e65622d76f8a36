package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// Times of the calls to the runtime.
const (
	// rpcMargin is added to the grace period of a stop call: containerd never kills a container if the
	// call ends before the grace period does.
	rpcMargin = 10 * time.Second
	// stopSandboxFor limits StopSandbox: CRI-O takes it as a grace period, and a network plugin may
	// hang.
	stopSandboxFor = 5 * time.Second
	retryFirst     = 250 * time.Millisecond
	retryLast      = 8 * time.Second
)

// stopByRuntime asks the runtime to stop the containers and then the sandbox, and retries until it has
// confirmed all of them.
func (s *Stop) stopByRuntime(ctx context.Context) {
	escalated := s.escalated
	wait := retryFirst
	for sandbox := false; ; {
		s.stopContainers(ctx)
		// During a grace period, stopping the sandbox would cut it short.
		if !sandbox && (s.containersStopped() || s.graceLeft() == 0) {
			sandbox = s.stopSandbox(ctx)
		}
		if sandbox && s.containersStopped() {
			s.confirm()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-escalated:
			escalated, wait = nil, retryFirst
		case <-time.After(wait):
			wait = min(2*wait, retryLast)
		}
	}
}

// stopContainers stops all containers that are not known to have exited, in parallel. During the grace period, it asks
// again for each that failed: the others may take all of it.
func (s *Stop) stopContainers(ctx context.Context) {
	var calls sync.WaitGroup
	for _, l := range s.all() {
		if l.id == "" || s.isStopped(l) {
			continue
		}
		calls.Go(func() {
			for wait := retryFirst; !s.stopContainer(ctx, l.id); wait = min(2*wait, retryLast) {
				if s.graceLeft() == 0 {
					return
				}
				select {
				case <-time.After(min(wait, s.graceLeft())):
				case <-s.escalated:
					return
				case <-ctx.Done():
					return
				}
			}
			s.stopped(l)
		})
	}
	calls.Wait()
}

// stopContainer stops one container. If the stop escalates meanwhile, it makes a second call without
// grace alongside the first, which shortens it: every runtime supports that.
func (s *Stop) stopContainer(ctx context.Context, id string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	grace := s.graceLeft()
	first := make(chan bool, 1)
	go func() { first <- s.callStop(ctx, id, grace) }()
	escalated := s.escalated
	if grace == 0 {
		escalated = nil
	}
	select {
	case ok := <-first:
		return ok
	case <-escalated:
	}
	ok := s.callStop(ctx, id, 0)
	cancel()
	return <-first || ok
}

func (s *Stop) callStop(ctx context.Context, id string, grace time.Duration) bool {
	call, cancel := context.WithTimeout(ctx, grace+rpcMargin)
	defer cancel()
	return s.answered(ctx, "container", s.runtime.StopContainer(call, id, grace))
}

func (s *Stop) stopSandbox(ctx context.Context) bool {
	call, cancel := context.WithTimeout(ctx, stopSandboxFor)
	defer cancel()
	return s.answered(ctx, "sandbox", s.runtime.StopSandbox(call, s.req.SandboxID))
}

// answered records an error, unless the caller itself cancelled the call.
func (s *Stop) answered(ctx context.Context, what string, err error) bool {
	if err == nil || errors.Is(err, cri.ErrGone) {
		return true
	}
	if ctx.Err() == nil {
		s.note(fmt.Errorf("stop %s of %s: %w", what, s.req.Pod, err))
	}
	return false
}

// graceLeft returns the remaining grace period.
func (s *Stop) graceLeft() time.Duration {
	select {
	case <-s.escalated:
		return 0
	default:
		return max(s.req.Grace-time.Since(s.started), 0)
	}
}

func (s *Stop) isStopped(l *leaf) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.stopped
}

// containersStopped reports whether all containers have exited, as far as the runtime knows them. One that it does not know
// has exited when its cgroup is empty or the grace period is over.
func (s *Stop) containersStopped() bool {
	left := s.graceLeft() > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.leaves, func(l *leaf) bool { return !l.stopped && (l.id != "" || left && !l.empty) })
}

// stopped records the runtime's report that a container has exited.
func (s *Stop) stopped(l *leaf) {
	s.mu.Lock()
	l.stopped = true
	s.acted = s.acted || l.path == ""
	s.mu.Unlock()
	s.tell()
}

// confirm records the runtime's report that everything has exited.
func (s *Stop) confirm() {
	s.mu.Lock()
	s.report.Confirmed, s.report.ConfirmedAfter = true, time.Since(s.started)
	s.acted = s.acted || len(s.leaves) == 0 || s.alive
	s.mu.Unlock()
	s.tell()
}

// tell wakes the watch.
func (s *Stop) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}
