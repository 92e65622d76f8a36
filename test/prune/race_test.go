package prune_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// starts is the number of pods that start from prunable images while pruning runs in a loop.
const starts = 100

// A pod that starts while pruning runs never fails because its image was removed after its
// container had been created.
func TestPodsStartWhilePruning(t *testing.T) {
	t.Parallel() // this node does not affect TestIdleWritesNothing
	n := newNode(t, lab.Containerd2)
	ctx := context.Background()
	spec := func(i int) lab.ImageSpec {
		return lab.ImageSpec{Name: fmt.Sprintf("registry.local/race-%d:1", i), ExtraBytes: 4096 + int64(i), RepoDigest: true}
	}
	end, pruned := make(chan struct{}), 0
	var wg sync.WaitGroup
	wg.Go(func() {
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
			pruned += strings.Count(string(out), "registry.local/race-")
			// Prune at random moments of a start but not continuously: an image that never exists
			// long enough to be listed cannot race.
			time.Sleep(rand.N(500 * time.Millisecond))
		}
	})
	before := 0
	for i := range starts {
		s := spec(i % 5)
		if err := n.imported(s); err != nil {
			before++ // removed between its import and its listing
			continue
		}
		pod, err := n.lab.RunPod(ctx, lab.PodSpec{Name: fmt.Sprintf("race-%d", i), Containers: []lab.ContainerSpec{{Name: "main", Image: s.Name}}})
		switch {
		case err == nil:
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
	t.Logf("%d starts; %d found their image removed before they had a container; %d images were pruned meanwhile", starts, before, pruned)
	if pruned == 0 || before > starts/2 {
		t.Error("the race was not run: too little was pruned, or too few pods started")
	}
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
