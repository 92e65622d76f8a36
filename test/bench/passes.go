package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"text/tabwriter"
	"time"
)

// passCost is the cost of one pass on a node with a given number of sandboxes.
type passCost struct {
	Kind      string  `json:"kind"` // idle, or pressed: measures, ranks and starts a stop
	Sandboxes int     `json:"sandboxes"`
	Micros    float64 `json:"microseconds"`
	Each      float64 `json:"microseconds_per_sandbox"`
	Allocs    int64   `json:"allocations"`
}

// benchLine is a line of `go test -bench`: name, rounds, time, bytes, allocations.
var benchLine = regexp.MustCompile(`(?m)^BenchmarkPass/(\w+)/(\d+)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\s+\d+ B/op\s+(\d+) allocs/op$`)

// measurePasses runs package guard's benchmark of whole passes over real cgroups.
func measurePasses(ctx context.Context, b *bench) error {
	b.say("passes over 10 to 1,000 sandboxes")
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkPass$", "-benchmem", "-benchtime=300x", "./guard")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go test -bench: %w\n%s", err, out)
	}
	for _, m := range benchLine.FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(m[2]))
		ns, _ := strconv.ParseFloat(string(m[3]), 64)
		allocs, _ := strconv.ParseInt(string(m[4]), 10, 64)
		b.report.Passes = append(b.report.Passes, passCost{string(m[1]), n, ns / 1e3, ns / 1e3 / float64(n), allocs})
	}
	if len(b.report.Passes) == 0 {
		return fmt.Errorf("go test -bench: no figures in\n%s", out)
	}
	return nil
}

// passRatio compares the cost per sandbox of a pressed pass at 1,000 sandboxes with that at 110; 0
// means not measured.
func (r *report) passRatio() float64 {
	var few, many float64
	for _, p := range r.Passes {
		switch {
		case p.Kind != "pressed":
		case p.Sandboxes == 110:
			few = p.Each
		case p.Sandboxes == 1000:
			many = p.Each
		}
	}
	if few == 0 {
		return 0
	}
	return many / few
}

func (r *report) printPasses(w io.Writer) {
	if len(r.Passes) == 0 {
		return
	}
	title(w, "One pass")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "pass\tsandboxes\ttook µs\tfor each\tallocations\t")
	for _, p := range r.Passes {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.2f\t%d\t\n", p.Kind, p.Sandboxes, p.Micros, p.Each, p.Allocs)
	}
	_ = t.Flush()
}
