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

	"github.com/criguard/criguard/test/lab"
)

// starts is how many pods start from prunable images while pruning runs in a
// loop.
const starts = 100

// A pod that starts while pruning runs never fails for an image that was removed
// after its container had been created.
func TestPodsStartWhilePruning(t *testing.T) {
	t.Parallel() // what happens on another node is none of TestIdleWritesNothing's
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
			out, err := exec.Command(criguard, "prune", "--images", "--config", n.config, "--run-dir", n.dir).CombinedOutput()
			if err != nil && !strings.Contains(string(out), "removed") {
				t.Errorf("criguard prune: %v: %s", err, out)
				return
			}
			pruned += strings.Count(string(out), "registry.local/race-")
			// At any moment of a start, and not all the time: an image that is never there long
			// enough to be listed races with nothing.
			time.Sleep(rand.N(500 * time.Millisecond))
		}
	})
	before := 0
	for i := range starts {
		s := spec(i % 5)
		if err := n.imported(s); err != nil {
			before++ // it was removed between its import and its listing
			continue
		}
		pod, err := n.lab.RunPod(ctx, lab.PodSpec{Name: fmt.Sprintf("race-%d", i), Containers: []lab.ContainerSpec{{Name: "main", Image: s.Name}}})
		switch {
		case err == nil:
			if err := n.lab.RemovePod(ctx, pod); err != nil {
				t.Error(err)
			}
		case imageMissing(err) && !strings.Contains(err.Error(), "start container"):
			before++ // it was removed before there was a container: the next pull brings it back
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

// imported imports an image and waits until it is listed, for a while: it may be removed before.
func (n *node) imported(spec lab.ImageSpec) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := n.lab.ImportImage(ctx, spec)
	return err
}

// imageMissing tells that a container could not be created for want of its image.
func imageMissing(err error) bool {
	return strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "no such")
}
