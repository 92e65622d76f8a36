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

// comparison returns a Markdown table with one row per guard and rate.
func comparison(trials []*trial) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| guard | version | MiB/s | reached | tries | kernel OOM kills | wrong victims | time to relief, median / worst |"+
		" overshoot MiB, median / worst | heartbeat's longest gap, median / worst |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|---|---|")
	for _, t := range trials {
		version := ""
		if len(t.said) > 0 {
			version = t.said[0]
		}
		for _, tries := range byRate(t.tries) {
			kills, wrong := victims(tries)
			rate, reached := "", ""
			if tries[0].Rate > 0 {
				middle, _ := medianWorst(tries, func(try scenario.Try) int { return try.Reached })
				rate, reached = fmt.Sprint(tries[0].Rate), fmt.Sprint(middle)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d | %d | %s | %s | %s |\n", t.scenario.Name, version, rate, reached, len(tries), kills, wrong,
				spread(tries, relief), overshoot(tries), spread(tries, func(try scenario.Try) time.Duration { return try.Gap }))
		}
	}
	return b.String()
}

// summary returns a Markdown table with one row per program that guards a node, and one without a guard, over all
// rates.
func summary(trials []*trial) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| guard | memory recovers after, median / worst | overshoot MiB, median / worst | wrong victims | kernel OOM kills |")
	fmt.Fprintln(&b, "|---|---|---|---|---|")
	for _, t := range trials {
		if t.scenario.Detail {
			continue
		}
		kills, wrong := victims(t.tries)
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d |\n", t.scenario.Name, spread(t.tries, relief), overshoot(t.tries), wrong, kills)
	}
	return b.String()
}

// byRate groups tries by the rate of their hogs, in their order.
func byRate(tries []scenario.Try) (groups [][]scenario.Try) {
	for i, try := range tries {
		if i == 0 || try.Rate != tries[i-1].Rate {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], try)
	}
	return groups
}

func relief(try scenario.Try) time.Duration { return try.Relief }

// overshoot formats how far memory fell, "" if it never did.
func overshoot(tries []scenario.Try) string {
	median, worst := medianWorst(tries, func(try scenario.Try) int64 { return try.Overshoot >> 20 })
	if none := !slices.ContainsFunc(tries, func(try scenario.Try) bool { return try.Relief > 0 }); none {
		return ""
	}
	return fmt.Sprintf("%d / %d", median, worst)
}

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
	median, worst := medianWorst(tries, of)
	if worst == 0 {
		return "" // for example, the relief without a hog
	}
	return fmt.Sprintf("%s / %s", median.Round(10*time.Millisecond), worst.Round(10*time.Millisecond))
}

// medianWorst returns the median and the maximum of a measure.
func medianWorst[T cmp.Ordered](tries []scenario.Try, of func(scenario.Try) T) (median, worst T) {
	if len(tries) == 0 {
		return median, worst
	}
	all := make([]T, len(tries))
	for i, try := range tries {
		all[i] = of(try)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1]
}
