package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints the table, and the end of the node's journal for each failure, also for one that a second run did not
// have.
func report(w io.Writer, trials []*trial) (failed, flaky int) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SCENARIO\tCGROUP\tRUNTIME\tMEMORY\tVERDICT\tSECONDS\tWHAT HAPPENED")
	for _, t := range trials {
		p := t.profile
		fmt.Fprintf(table, "%s\tv%d\t%s\t%d MiB\t%s\t%.1f\t%s\n", t.scenario.Name, p.Cgroup, p.Runtime(), p.MemoryMiB, t.verdict(),
			t.took.Seconds(), strings.Join(t.said, "; "))
	}
	_ = table.Flush()
	for _, t := range trials {
		if t.first != "" {
			fmt.Fprintf(w, "\n=== %s %s, the first time: %s\n%s\n", t.verdict(), t.name(), t.scenario.What, t.first)
		}
		switch t.verdict() {
		case "FAILED":
			failed++
			fmt.Fprintf(w, "\n=== FAILED %s: %s\n  %s\n%s\n", t.name(), t.scenario.What, strings.Join(t.failures, "\n  "), t.journal)
		case "FLAKY":
			flaky++
			fmt.Fprintf(w, "\n=== FLAKY %s, the second time: %s\n%s\n", t.name(), strings.Join(t.said, "; "), t.journal)
		}
	}
	return failed, flaky
}

// progress prints a line when a trial ends.
func progress(w io.Writer, t *trial) {
	fmt.Fprintf(w, "%-6s %6.1fs  %s: %s\n", t.verdict(), t.took.Round(100*time.Millisecond).Seconds(), t.name(), strings.Join(append(t.said, t.failures...), "; "))
}
