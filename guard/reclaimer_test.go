package guard

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// deadSandboxes is a runtime with sandboxes of one pod, of which only the newest is
// alive. To remove one takes a while.
type deadSandboxes struct {
	reclaim.Runtime
	removal time.Duration

	mu        sync.Mutex
	sandboxes []cri.Sandbox
	asked     int
}

func (d *deadSandboxes) left() []cri.Sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sandboxes)
}

func (d *deadSandboxes) Containers(context.Context) ([]cri.Container, error) { return nil, nil }
func (d *deadSandboxes) Sandboxes(context.Context) ([]cri.Sandbox, error)    { return d.left(), nil }
func (d *deadSandboxes) StopSandbox(context.Context, string) error           { return nil }

func (d *deadSandboxes) Sandbox(_ context.Context, id string) (cri.Sandbox, error) {
	sandboxes := d.left()
	i := slices.IndexFunc(sandboxes, func(b cri.Sandbox) bool { return b.ID == id })
	if i < 0 {
		return cri.Sandbox{}, cri.ErrGone
	}
	return sandboxes[i], nil
}

func (d *deadSandboxes) RemoveSandbox(ctx context.Context, id string) error {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	select {
	case <-time.After(d.removal):
	case <-ctx.Done():
		return fmt.Errorf("remove sandbox: %w", cri.ErrTimeout)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sandboxes = slices.DeleteFunc(d.sandboxes, func(b cri.Sandbox) bool { return b.ID == id })
	return nil
}

// A node that runs out of PIDs waits neither for whoever prunes images nor for all dead
// sandboxes; those that are left go with the next reclaim.
func TestReclaimForPIDsIsBounded(t *testing.T) {
	cfg := goodConfig(t, effectNode(t, fmt.Sprintf("history.dir = %q", t.TempDir())))
	n := openEffectNode(t, cfg)
	client, err := cri.Dial("/nobody/listens", 0)
	if err != nil {
		t.Fatal(err)
	}
	n.conn.client = client
	h := newHousekeeper(n, cfg, slog.New(slog.DiscardHandler), func(ReclaimView) {})
	h.client = client
	synctest.Test(t, func(t *testing.T) {
		const dead = 3
		rt := &deadSandboxes{removal: 1500 * time.Millisecond}
		for i := range dead + 1 {
			rt.sandboxes = append(rt.sandboxes, cri.Sandbox{
				ID: fmt.Sprintf("s%d", i), UID: "p", Attempt: uint32(i), Ready: i == dead, CreatedAt: time.Now().Add(-time.Hour),
			})
		}
		h.collector = reclaim.NewCollector(rt, reclaim.Options{Clock: n.moment})
		r := &reclaimer{node: n, keeper: h}
		relieve := func() Relief {
			started := time.Now()
			j := r.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.PIDAvailable}}, policy.SingleFS, nil)
			<-j.Done()
			if took := time.Since(started); took > reliefAtMost {
				t.Errorf("took %v", took)
			}
			return j.Relief()
		}

		prune, end := context.WithCancel(t.Context())
		pruned := make(chan []reclaim.Report)
		go func() {
			pruned <- h.collector.Collect(prune, reclaim.Plan{Steps: []reclaim.Step{reclaim.StepImages}, Target: func(ctx context.Context) (reclaim.Room, error) {
				<-ctx.Done()
				return reclaim.Room{}, ctx.Err()
			}})
		}()
		synctest.Wait()
		if got := relieve(); len(got.Reports) != 0 || rt.asked != 0 {
			t.Errorf("beside another run: %+v, %d removals", got, rt.asked)
		}
		end()
		<-pruned

		if got := relieve(); len(got.Reports) != 1 || len(got.Reports[0].Removed) != 1 || rt.asked != 2 {
			t.Errorf("in one reclaim: %+v, %d removals", got, rt.asked)
		}
		rt.removal = 0
		if relieve(); len(rt.left()) != 1 {
			t.Errorf("left after the next one: %+v", rt.left())
		}
	})
}

// A reclaim that had to be given up, as the disk did not answer, tells so: what may go is there still.
func TestReclaimOfADiskThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{"it hangs": {errDiskHangs, true}, "it answers": {nil, false}} {
		k := newKeeping(t)
		k.node.kernel.disks.read = func(string) (cgroup.Space, error) { return spaceOn(1, 5), c.err }
		r := &reclaimer{node: k.node, keeper: k.housekeeper}
		j := r.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
		<-j.Done()
		if got := j.Relief().Late; got != c.want || j.Relief().Inconclusive {
			t.Errorf("%s: late: %t, inconclusive: %t", name, got, j.Relief().Inconclusive)
		}
	}
}

// Logs on a disk of their own are not removed for nodefs: it would not free a byte of it.
func TestReclaimLeavesLogsThatAreApart(t *testing.T) {
	for device, want := range map[uint64]bool{1: true, 2: false} {
		k := newKeeping(t)
		k.node.kernel.disks.read = func(path string) (cgroup.Space, error) {
			if path == k.node.podLogs {
				return spaceOn(device, 5), nil
			}
			return spaceOn(1, 5), nil
		}
		r := &reclaimer{node: k.node, keeper: k.housekeeper}
		j := r.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
		<-j.Done()
		if got := j.Relief().Steps; slices.Contains(got, "logs") != want || !slices.Contains(got, "images") {
			t.Errorf("logs on device %d: steps %q", device, got)
		}
	}
}
