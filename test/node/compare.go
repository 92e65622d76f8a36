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

// marks enclose the part of the document that is measured.
const begins, ends = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

// writeComparison puts the table of the tries between the marks of a document.
func writeComparison(path string, trials []*trial) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		return fmt.Errorf("%s: no %q and %q", path, strings.TrimSpace(begins), strings.TrimSpace(ends))
	}
	return os.WriteFile(path, []byte(before+begins+comparison(trials)+ends+after), 0o644)
}

// comparison is a Markdown table with one row for each guard.
func comparison(trials []*trial) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| guard | version | tries | kernel OOM kills | wrong victims | time to relief, median / worst | heartbeat's longest gap, median / worst |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|")
	for _, t := range trials {
		version := ""
		if len(t.said) > 0 {
			version = t.said[0]
		}
		kills, wrong := 0, 0
		for _, try := range t.tries {
			kills += try.KernelKills
			wrong += len(try.Wrong)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s | %s |\n", t.scenario.Name, version, len(t.tries), kills, wrong,
			spread(t.tries, func(try scenario.Try) time.Duration { return try.Relief }),
			spread(t.tries, func(try scenario.Try) time.Duration { return try.Gap }))
	}
	return b.String()
}

// spread is the median and the largest of a measure.
func spread(tries []scenario.Try, of func(scenario.Try) time.Duration) string {
	if len(tries) == 0 {
		return ""
	}
	sorted := slices.SortedFunc(slices.Values(tries), func(a, b scenario.Try) int { return cmp.Compare(of(a), of(b)) })
	if of(sorted[len(sorted)-1]) == 0 {
		return "" // as of a relief where there was no hog
	}
	round := func(t scenario.Try) time.Duration { return of(t).Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s / %s", round(sorted[len(sorted)/2]), round(sorted[len(sorted)-1]))
}
