package prune_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

const (
	images  = 20
	inUse   = 5
	pinned  = 2
	undated = 3 // without a repository digest
	airgaps = 2
	rounds  = 10
)

// Twenty images on a filesystem of 1 GiB: with a threshold of 15 % and a minimum reclaim of 5 %,
// criguard removes the least recently used prunable images up to the target, no more, and never a
// protected one, regardless of age.
func TestPressurePrunesJustEnough(t *testing.T) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) {
			n := newNode(t, runtime)
			specs, prunable := n.furnish(runtime)
			last := rounds
			if runtime != lab.Containerd2 {
				last = rounds / 3 // the runtimes differ in pins and in the form of the list, not in ages
			}
			for round := range last {
				n.round(round, specs, prunable)
			}
		})
	}
}

// furnish imports the images and runs pods on some. It returns all of them, and the prunable ones.
func (n *node) furnish(runtime string) (specs []lab.ImageSpec, prunable []string) {
	n.Helper()
	ctx := context.Background()
	var list []string
	for i := range images {
		s := lab.ImageSpec{Name: fmt.Sprintf("registry.local/app-%02d:1", i), ExtraBytes: 15*mib + int64(i), RepoDigest: true}
		switch j := i - inUse; {
		case i < inUse:
		case j < pinned:
			s.Pinned = runtime == lab.Containerd2
			if !s.Pinned {
				prunable = append(prunable, s.Name) // this runtime cannot pin
			}
		case j < pinned+undated:
			s.RepoDigest = false
		case j < pinned+undated+airgaps:
			list = append(list, s.Name)
		default:
			prunable = append(prunable, s.Name)
		}
		specs = append(specs, s)
	}
	if err := os.WriteFile(filepath.Join(n.airgap, "images.txt"), []byte(strings.Join(list, "\n")+"\n"), 0o600); err != nil {
		n.Fatal(err)
	}
	if _, err := n.lab.ImportImages(ctx, specs...); err != nil {
		n.Fatal(err)
	}
	for i := range inUse {
		if _, err := n.lab.RunPod(ctx, lab.PodSpec{
			Name: fmt.Sprintf("pod-%d", i), Containers: []lab.ContainerSpec{{Name: "main", Image: specs[i].Name}},
		}); err != nil {
			n.Fatal(err)
		}
	}
	return specs, prunable
}

// round restores missing images, gives the images random ages, fills the filesystem, and lets
// criguard relieve it.
func (n *node) round(round int, specs []lab.ImageSpec, prunable []string) {
	n.Helper()
	have := n.present()
	missing := slices.DeleteFunc(slices.Clone(specs), func(s lab.ImageSpec) bool { _, ok := have[s.Name]; return ok })
	if len(missing) > 0 {
		if _, err := n.lab.ImportImages(context.Background(), missing...); err != nil {
			n.Fatal(err)
		}
	}
	order := n.age(round, n.present(), prunable)
	filler := n.fill(0.10)
	n.relieve()
	n.judge(round, specs, prunable, order)
	if err := os.Remove(filler); err != nil {
		n.Fatal(err)
	}
}

// age writes a ledger in which the prunable images were used in a random order for the round, which it returns,
// and the others never.
func (n *node) age(round int, have map[string]cri.Image, prunable []string) []string {
	n.Helper()
	path := filepath.Join(n.Dir, "images.json")
	for _, suffix := range []string{"", ".prev"} {
		if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
			n.Fatal(err)
		}
	}
	boot, err := cgroup.BootID("/proc")
	if err != nil {
		n.Fatal(err)
	}
	order := slices.Clone(prunable)
	rand.New(rand.NewPCG(1, uint64(round))).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	now := cgroup.BootTime()
	records := map[string]any{}
	for _, img := range have {
		records[cri.TrimID(img.ID)] = map[string]any{"first_seen": 0}
	}
	for i, name := range order {
		records[cri.TrimID(have[name].ID)] = map[string]any{"first_seen": 0, "used": true, "last_used": time.Duration(i+1) * time.Millisecond}
	}
	body, err := json.Marshal(map[string]any{"boot": boot, "at": now, "time": now, "images": records})
	if err != nil {
		n.Fatal(err)
	}
	sum := sha256.Sum256(body)
	file, err := json.Marshal(map[string]any{"version": 1, "checksum": hex.EncodeToString(sum[:]), "ledger": json.RawMessage(body)})
	if err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		n.Fatal(err)
	}
	return order
}

// fill writes a file that leaves the given share of the image filesystem available.
func (n *node) fill(leave float64) string {
	n.Helper()
	s, err := cgroup.Statfs(n.lab.ContainerdRoot())
	if err != nil {
		n.Fatal(err)
	}
	path := filepath.Join(n.lab.ContainerdRoot(), "filler")
	f, err := os.Create(path)
	if err != nil {
		n.Fatal(err)
	}
	size := s.Available - int64(leave*float64(s.Total))
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		n.Fatal(err)
	}
	if err := f.Close(); err != nil {
		n.Fatal(err)
	}
	return path
}

// relieve runs the service until the condition's threshold is no longer met.
func (n *node) relieve() {
	n.Helper()
	defer n.Start().End()
	n.Within(harness.Patience, "relief", func() bool {
		s, err := cgroup.Statfs(n.lab.ContainerdRoot())
		return err == nil && s.Available*100 >= s.Total*20
	})
	// Once criguard reports the end of the reclaim, it must not remove anything else.
	n.Within(harness.Patience, "the reclaim to end", func() bool {
		return strings.Contains(n.Run(n.Args("history")...).Out, "reclaimed")
	})
	for _, p := range harness.Ask[api.HistoryList](n.Node, "history", "--number", "0").Passes {
		if p.Stop != nil {
			n.Errorf("a pod was stopped for a full disk that pruning relieves: %s", p.Stop.Pod)
		}
	}
}

func (n *node) judge(round int, specs []lab.ImageSpec, prunable, order []string) {
	n.Helper()
	after := n.present()
	var gone []string
	for _, s := range specs {
		if _, ok := after[s.Name]; ok {
			continue
		}
		gone = append(gone, s.Name)
		if !slices.Contains(prunable, s.Name) {
			n.Errorf("round %d: protected image %s is gone", round, s.Name)
		}
	}
	if len(gone) == 0 || len(gone) >= len(prunable) {
		n.Fatalf("round %d: %d of %d prunable images went", round, len(gone), len(prunable))
	}
	want := slices.Sorted(slices.Values(order[:len(gone)]))
	if !slices.Equal(gone, want) {
		n.Errorf("round %d: removed %v, the least recently used are %v", round, gone, want)
	}
	n.Logf("round %d: removed %d of %d prunable images", round, len(gone), len(prunable))
}
