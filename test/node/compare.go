package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

// These marks enclose the measured part of the document.
const begins, ends = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

// writeMeasured writes a table between the marks of a document.
func writeMeasured(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		return fmt.Errorf("%s: no %q and %q", path, strings.TrimSpace(begins), strings.TrimSpace(ends))
	}
	return os.WriteFile(path, []byte(before+begins+table+ends+after), 0o644)
}

// comparison returns a Markdown table with one row per guard.
func comparison(trials []*trial) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| guard | version | tries | kernel OOM kills | wrong victims | time to relief, median / worst | heartbeat's longest gap, median / worst |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|")
	for _, t := range trials {
		version := ""
		if len(t.said) > 0 {
			version = t.said[0]
		}
		kills, wrong := victims(t.tries)
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s | %s |\n", t.scenario.Name, version, len(t.tries), kills, wrong,
			spread(t.tries, relief), spread(t.tries, func(try scenario.Try) time.Duration { return try.Gap }))
	}
	return b.String()
}

// summary returns a Markdown table with one row per program that guards a node, and one without a guard.
func summary(trials []*trial) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| guard | memory is back after, median / worst | wrong victims | kernel OOM kills |")
	fmt.Fprintln(&b, "|---|---|---|---|")
	for _, t := range trials {
		if t.scenario.Detail {
			continue
		}
		kills, wrong := victims(t.tries)
		fmt.Fprintf(&b, "| %s | %s | %d | %d |\n", t.scenario.Name, spread(t.tries, relief), wrong, kills)
	}
	return b.String()
}

func relief(try scenario.Try) time.Duration { return try.Relief }

// victims returns how many processes the kernel killed, and how many of the pods and daemons that ended were
// not the hog.
func victims(tries []scenario.Try) (kills, wrong int) {
	for _, try := range tries {
		kills += try.KernelKills
		wrong += len(try.Wrong)
	}
	return kills, wrong
}

// spread formats the median and the maximum of a measure.
func spread(tries []scenario.Try, of func(scenario.Try) time.Duration) string {
	if len(tries) == 0 {
		return ""
	}
	sorted := slices.SortedFunc(slices.Values(tries), func(a, b scenario.Try) int { return cmp.Compare(of(a), of(b)) })
	if of(sorted[len(sorted)-1]) == 0 {
		return "" // for example, the relief without a hog
	}
	round := func(t scenario.Try) time.Duration { return of(t).Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s / %s", round(sorted[len(sorted)/2]), round(sorted[len(sorted)-1]))
}
