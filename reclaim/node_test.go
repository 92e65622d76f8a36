package reclaim

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// node is a kernel and a runtime with one pod. Times are those of the synctest bubble.
type node struct {
	mu      sync.Mutex
	started time.Time
	log     []string       // the calls, with their times
	procs   map[string]int // processes, by cgroup; no entry = the cgroup is gone

	stubborn map[string]int // processes that survive a kill
	killErr  map[string]error
	readErr  map[string]error
	shared   map[string]int64 // memory in files, by cgroup

	obeys    map[string]time.Duration // containers that exit by themselves, after this long
	stopErr  map[string]error         // by container or sandbox
	hung     bool                     // the runtime accepts calls and never answers
	deadline map[string]time.Time     // when the runtime kills, by container
}

func newNode(containers ...string) *node {
	n := &node{
		started: time.Now(), procs: map[string]int{}, stubborn: map[string]int{}, killErr: map[string]error{},
		readErr: map[string]error{}, obeys: map[string]time.Duration{}, stopErr: map[string]error{}, deadline: map[string]time.Time{},
	}
	for _, c := range containers {
		n.procs["/kubepods/podx/"+c] = 3
	}
	return n
}

func (n *node) note(format string, args ...any) {
	n.log = append(n.log, fmt.Sprintf("%v ", time.Since(n.started).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// seen returns the calls, without the reads of cgroups.
func (n *node) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.log)
}

func (n *node) Kill(rel string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note("kill %s", rel)
	if err := n.killErr[rel]; err != nil {
		return 0, err
	}
	had, ok := n.procs[rel]
	if !ok {
		return 0, fmt.Errorf("open %s: %w", rel, fs.ErrNotExist)
	}
	n.procs[rel] = min(n.stubborn[rel], had)
	return had, nil
}

func (n *node) SharedMemory(rel string) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared[rel], n.readErr[rel]
}

func (n *node) Populated(rel string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.readErr[rel]; err != nil {
		return false, err
	}
	procs, ok := n.procs[rel]
	if !ok {
		return false, fmt.Errorf("open %s: %w", rel, fs.ErrNotExist)
	}
	return procs > 0, nil
}

// StopContainer behaves like the runtimes: it waits until the container has exited by itself or its
// grace period is over. A shorter call shortens a longer one.
func (n *node) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	n.mu.Lock()
	n.note("stop %s %v", id, grace)
	ends := time.Now().Add(grace)
	if d, ok := n.obeys[id]; ok && d < grace {
		ends = time.Now().Add(d)
	}
	if old, ok := n.deadline[id]; !ok || ends.Before(old) {
		n.deadline[id] = ends
	}
	err, hung := n.stopErr[id], n.hung
	n.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		n.mu.Lock()
		if n.procs["/kubepods/podx/"+id] == 0 && !hung {
			n.mu.Unlock()
			return nil
		}
		if !hung && !time.Now().Before(n.deadline[id]) {
			n.procs["/kubepods/podx/"+id] = 0
			n.mu.Unlock()
			return nil
		}
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop container: %w", cri.ErrTimeout)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *node) StopSandbox(ctx context.Context, id string) error {
	n.mu.Lock()
	n.note("stop sandbox")
	err, hung := n.stopErr[id], n.hung
	n.mu.Unlock()
	if hung {
		<-ctx.Done()
		return fmt.Errorf("stop sandbox: %w", cri.ErrTimeout)
	}
	return err
}

func (n *node) hang(hung bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = hung
}

// victim returns the pod, with the cgroup of every container known.
func victim(containers ...string) Victim {
	v := Victim{SandboxID: "sb", Pod: "default/x", Cgroup: "/kubepods/podx"}
	for _, c := range containers {
		v.Containers = append(v.Containers, VictimContainer{ID: c, Name: c, Cgroup: "/kubepods/podx/" + c})
	}
	return v
}

// about reports whether d is the expected time, or up to one poll later.
func about(d, want time.Duration) bool { return d >= want && d <= want+pollLast+10*time.Millisecond }

// settled waits for Done and returns the report at that moment.
func settled(t *testing.T, s *Stop) StopReport {
	t.Helper()
	<-s.Done()
	return s.Report()
}
