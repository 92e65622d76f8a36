package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints the table, and the end of the node's journal for each failure.
func report(w io.Writer, trials []*trial) (failed int) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SCENARIO\tCGROUP\tRUNTIME\tMEMORY\tVERDICT\tSECONDS\tWHAT HAPPENED")
	for _, t := range trials {
		verdict := "ok"
		if len(t.failures) > 0 {
			verdict, failed = "FAILED", failed+1
		}
		p := t.profile
		fmt.Fprintf(table, "%s\tv%d\t%s\t%d MiB\t%s\t%.1f\t%s\n", t.scenario.Name, p.Cgroup, p.Runtime(), p.MemoryMiB, verdict,
			t.took.Seconds(), strings.Join(t.said, "; "))
	}
	_ = table.Flush()
	for _, t := range trials {
		if len(t.failures) > 0 {
			fmt.Fprintf(w, "\n=== %s: %s\n  %s\n%s\n", t.name(), t.scenario.What, strings.Join(t.failures, "\n  "), t.journal)
		}
	}
	return failed
}

// progress prints a line when a trial ends.
func progress(w io.Writer, t *trial) {
	verdict := "ok    "
	if len(t.failures) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "%s %6.1fs  %s: %s\n", verdict, t.took.Round(100*time.Millisecond).Seconds(), t.name(), strings.Join(append(t.said, t.failures...), "; "))
}
