package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := node(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func node(ctx context.Context) error {
	pattern := flag.String("run", "", "only scenarios whose name/profile matches this regular expression")
	jobs := flag.Int("j", 2, "machines at a time")
	again := flag.Bool("again", false, "run what failed once more, alone, unless more than two failed or somebody innocent was stopped")
	list := flag.Bool("list", false, "say what there is, and run nothing")
	compare := flag.String("compare", "", "compare criguard with other guards instead, and write the table to this file")
	brief := flag.String("summary", "", "with -compare, write a shorter table to this file")
	tries := flag.Int("tries", 20, "how often a scenario repeats what must work every time; with -compare, how often each guard is tried at each rate")
	length := flag.Duration("faults", time.Minute, "how long the scenario of random faults goes on")
	seed := flag.Uint64("seed", 1, "of the random faults, which are the same with the same seed; 0 = a new one")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1e6)
	}
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("read -run: %w", err)
	}
	scenarios := scenario.All()
	if *compare != "" {
		scenarios, *jobs = scenario.Rivals(), 1 // measurements run one at a time
	}
	trials := trialsOf(scenarios, match.MatchString)
	for _, t := range trials {
		t.order = scenario.Order{Tries: *tries, Length: *length, Seed: *seed}
	}
	if len(trials) == 0 {
		return fmt.Errorf("no scenario matches %q (hint: -list)", *pattern)
	}
	if *list {
		for _, t := range trials {
			fmt.Printf("%-40s %s\n", t.name(), t.scenario.What)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "criguard-node-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	l := &labs{dir: dir, frozen: map[string]*frozen{}}
	if err := installTools(ctx); err != nil {
		return err
	}
	if l.image, err = buildImage(ctx); err != nil {
		return err
	}
	if l.payload, err = buildPayload(ctx, dir, extrasOf(trials)); err != nil {
		return err
	}
	runAll(ctx, l, trials, *jobs)
	if *again {
		for _, t := range forgivable(trials) {
			if ctx.Err() == nil {
				t.runAgain(ctx, l)
				progress(os.Stdout, t)
			}
		}
	}
	failed, flaky := report(os.Stdout, trials)
	fmt.Printf("\ncriguard %s: %d scenarios, %d failed, %d flaky, %s\n", l.payload.version, len(trials), failed, flaky, time.Since(begin).Round(time.Second))
	if *compare != "" && failed == 0 && ctx.Err() == nil {
		err := writeMeasured(*compare, comparison(trials))
		if *brief != "" {
			err = errors.Join(err, writeMeasured(*brief, summary(trials)))
		}
		if err != nil {
			return fmt.Errorf("write comparison: %w", err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d scenarios failed", failed, len(trials))
	}
	return ctx.Err()
}

// maxAgain is how many scenarios may fail and pass the second time.
const maxAgain = 2

// forgivable returns the failed trials that may run again: none if there are too many, or if a failure cannot come
// from a machine that is too slow.
func forgivable(trials []*trial) []*trial {
	failed := slices.DeleteFunc(slices.Clone(trials), func(t *trial) bool { return len(t.failures) == 0 })
	if len(failed) > maxAgain || slices.ContainsFunc(failed, func(t *trial) bool { return t.wrong }) {
		return nil
	}
	return failed
}

// runAll runs the trials, jobs at a time. The potentially longest ones start first, so that none
// runs alone at the end.
func runAll(ctx context.Context, l *labs, trials []*trial, jobs int) {
	var wg sync.WaitGroup
	queue := make(chan *trial)
	for range jobs {
		wg.Go(func() {
			for t := range queue {
				t.run(ctx, l)
				progress(os.Stdout, t)
			}
		})
	}
	longest := func(a, b *trial) int { return cmp.Compare(b.scenario.Bound(), a.scenario.Bound()) }
	for _, t := range slices.SortedStableFunc(slices.Values(trials), longest) {
		queue <- t
	}
	close(queue)
	wg.Wait()
}
