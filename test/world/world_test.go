package world

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri/critest"
)

// A world keeps little memory and allocates much. At the default percentage, a sixth of the time goes to garbage collections.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

// run runs a world in a bubble, and fails the test for each violation.
func run(t *testing.T, prepare func(*testing.T) (*World, time.Duration)) (story string) {
	t.Helper()
	story, wrong := play(t, func(t *testing.T) *World {
		w, length := prepare(t)
		w.Run(length)
		return w
	})
	for _, v := range wrong {
		t.Error(v)
	}
	return story
}

// play runs a world in a bubble, and returns the violations, too.
func play(t *testing.T, run func(*testing.T) *World) (story string, wrong []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		w.Close()
		w.agree(w)
		story, wrong = w.story.String(), w.wrong
	})
	return story, wrong
}

// An hour on a node where nothing happens: no pod is stopped.
func TestIdleHour(t *testing.T) {
	began := time.Now()
	run(t, func(t *testing.T) (*World, time.Duration) {
		w := New(t, false, 4*gib, critest.Containerd2)
		for i := range 30 {
			w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 20 * mib})
		}
		w.Start()
		return w, time.Hour
	})
	t.Logf("an hour with 30 pods took %v", time.Since(began))
}

// many reports whether more worlds run than the few that are quick enough for every change.
func many() bool { return os.Getenv("CRIGUARD_SEEDS") != "" }

// seeds returns the seeds to run: CRIGUARD_SEEDS, such as "1000" or "1000-2000", or a few quick ones.
func seeds(t *testing.T) (from, to uint64) {
	t.Helper()
	if !many() {
		return 4, 10
	}
	text := os.Getenv("CRIGUARD_SEEDS")
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		first, last = "0", first
	}
	from, err := strconv.ParseUint(first, 10, 64)
	if err == nil {
		to, err = strconv.ParseUint(last, 10, 64)
	}
	if err != nil || to <= from {
		t.Fatalf("CRIGUARD_SEEDS=%s: neither a number of seeds nor a range of them (hint: 1000, 1000-2000)", text)
	}
	return from, to
}

// In the world of any seed, what must always hold does. CRIGUARD_SEED tells the story of one.
func TestSeeds(t *testing.T) {
	if text := os.Getenv("CRIGUARD_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("\n" + run(t, func(t *testing.T) (*World, time.Duration) {
			w, length := FromSeed(t, seed)
			if path := os.Getenv("CRIGUARD_TRACE"); path != "" {
				f, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close() })
				w.WriteTrace(f)
				t.Logf("configuration of the trace:\n%s", strings.Join(w.settings, "\n"))
			}
			return w, length
		}))
		return
	}
	from, to := seeds(t)
	// A parallel test waits in memory from the beginning, and stays there until the test around it ends.
	const atOnce = 1000
	for ; from < to; from += atOnce {
		end := min(from+atOnce, to)
		t.Run(fmt.Sprintf("%d-%d", from, end), func(t *testing.T) {
			for seed := from; seed < end; seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					run(t, func(t *testing.T) (*World, time.Duration) { return FromSeed(t, seed) })
				})
			}
		})
	}
}

// The worlds that have shown a fault of the program show no more than the others. Without its mend, each of them still shows it.
func TestFound(t *testing.T) {
	for _, f := range []struct {
		seed  uint64
		fault string
		slow  bool // too slow for every change
	}{
		{21321, "a threshold is met again right after a stop, and what that gave back hides a leak", true},
		{29053, "others write to the disk while the files of a stopped pod are deleted", true},
		{34998, "an operator protects a pod, and it looks like growth outside the pods", false},
		{36560, "a pod is back, and its volumes alone exceed its limit", false},
		{47509, "the runtime is away, and its old listing has a sandbox that a stop has emptied", false},
		{48550, "a hard threshold is met while the processes of a soft stop are ending", false},
		{70495, "a pod that has just started leaks when the machine wakes up", true},
		{86060, "the service restarts right after a stop, and what that gave back hides a leak", true},
	} {
		if f.slow && !many() {
			continue
		}
		t.Run(f.fault, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T) (*World, time.Duration) { return FromSeed(t, f.seed) })
		})
	}
}

// The same seed has the same story: of a few seeds, and of every sixteenth one if many run. In three of them, much happens at the same
// time.
func TestSameStory(t *testing.T) {
	twice := []uint64{1, 5, 47, 58, 90}
	if many() {
		for seed, to := seeds(t); seed < to; seed += 16 {
			twice = append(twice, seed)
		}
	}
	for _, seed := range twice {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			story := run(t, func(t *testing.T) (*World, time.Duration) { return FromSeed(t, seed) })
			again := run(t, func(t *testing.T) (*World, time.Duration) { return FromSeed(t, seed) })
			if story != again {
				t.Errorf("two stories:\n%s", diff(story, again))
			}
		})
	}
}

// diff returns the first lines in which two stories differ.
func diff(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i] + "\n" + bs[i]
		}
	}
	return fmt.Sprintf("%d and %d lines", len(as), len(bs))
}
