package prune_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// TestPodsStartWhilePruning goes on until so many pods have started from prunable images and so many images have been
// removed: on a busy machine, more images are removed before a pod can start from them. raceLimit is for hangs.
const (
	wantStarts, wantPruned = 40, 20
	raceLimit              = 10 * time.Minute
)

// A pod that starts while pruning runs never fails because its image was removed after its
// container had been created.
func TestPodsStartWhilePruning(t *testing.T) {
	t.Parallel() // this node does not affect TestIdleWritesNothing
	n := newNode(t, lab.Containerd2)
	ctx := context.Background()
	spec := func(i int) lab.ImageSpec {
		return lab.ImageSpec{Name: fmt.Sprintf("registry.local/race-%d:1", i), ExtraBytes: 4096 + int64(i), RepoDigest: true}
	}
	var pruned atomic.Int64
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-end:
				return
			default:
			}
			out, err := exec.Command(harness.Criguard, n.Args("prune", "--images")...).CombinedOutput()
			if err != nil && !strings.Contains(string(out), "removed") {
				t.Errorf("criguard prune: %v: %s", err, out)
				return
			}
			pruned.Add(int64(strings.Count(string(out), "registry.local/race-")))
			// Prune at random moments of a start but not continuously: an image that never exists
			// long enough to be listed cannot race.
			time.Sleep(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		}
	})
	started, before := 0, 0
	deadline := time.Now().Add(raceLimit)
	for i := 0; started < wantStarts || pruned.Load() < wantPruned; i++ {
		if t.Failed() || time.Now().After(deadline) {
			t.Error("the race was not run: too little was pruned, or too few pods started")
			break
		}
		s := spec(i % 5)
		if err := n.imported(s); err != nil {
			before++ // removed between its import and its listing
			continue
		}
		pod, err := n.lab.RunPod(ctx, lab.PodSpec{Name: fmt.Sprintf("race-%d", i), Containers: []lab.ContainerSpec{{Name: "main", Image: s.Name}}})
		switch {
		case err == nil:
			started++
			if err := n.lab.RemovePod(ctx, pod); err != nil {
				t.Error(err)
			}
		case imageMissing(err) && !strings.Contains(err.Error(), "start container"):
			before++ // removed before its container existed: the next pull restores it
		default:
			t.Errorf("start %d: %v", i, err)
		}
	}
	close(end)
	wg.Wait()
	t.Logf("%d pods started; %d found their image removed before they had a container; %d images were pruned meanwhile", started, before, pruned.Load())
}

// imported imports an image and waits for a while until it is listed. It may be removed before
// that.
func (n *node) imported(spec lab.ImageSpec) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := n.lab.ImportImage(ctx, spec)
	return err
}

// imageMissing reports whether a container could not be created because its image was missing.
func imageMissing(err error) bool {
	return strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "no such")
}
