package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// settings are the command's flags.
type settings struct {
	criguard   string
	out        string
	containerd string
	only       string
	pods       int
	tries      int
	breaches   int
	empty      int
	churn      int
	headroom   int64 // MiB
	idle       time.Duration
	settle     time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.criguard, "criguard", "bin/criguard", "the binary to measure")
	flag.StringVar(&s.out, "out", "bin/bench.json", "where to write the figures")
	flag.StringVar(&s.containerd, "containerd", lab.Containerd2, "containerd to run the pods: "+strings.Join(lab.Runtimes(), " or "))
	flag.StringVar(&s.only, "only", "", "measure these alone, comma-separated: "+strings.Join(sectionNames(), ", "))
	flag.IntVar(&s.pods, "pods", 110, "how many pods stand by")
	flag.IntVar(&s.tries, "tries", 20, "tries for each guard and rate")
	flag.IntVar(&s.breaches, "breaches", 50, "breaches in a row")
	flag.IntVar(&s.empty, "empty", 2000, "how many empty pod cgroups a leak is measured beside")
	flag.IntVar(&s.churn, "churn", 1000, "how many pods come and go without a kubelet")
	flag.Int64Var(&s.headroom, "headroom", 64, "MiB from where a hog begins to the threshold")
	flag.DurationVar(&s.idle, "idle", 5*time.Minute, "how long to watch the idle guard")
	flag.DurationVar(&s.settle, "settle", settleTime, "how long after its start, or after breaches, a guard counts as idle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// section is one part of the measurement.
type section struct {
	name string
	run  func(context.Context, *bench) error
}

// sections lists the sections in the order of measurement: those that need a quiet node come first.
func sections() []section {
	return []section{
		{"pass", measurePasses},
		{"idle", measureIdle},
		{"latency", measureLatency},
		{"runtime", measureRuntimes},
		{"fleet", measureFleet},
		{"breaches", measureBreaches},
		{"empty", measureEmpty},
		{"churn", measureChurn},
	}
}

func sectionNames() []string {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

// run measures the chosen sections and reports whether every goal was met.
func run(ctx context.Context, s settings) (ok bool, err error) {
	chosen := strings.Split(s.only, ",")
	for _, name := range chosen {
		if name != "" && !slices.Contains(sectionNames(), name) {
			return false, fmt.Errorf("-only %q: want some of %s", name, strings.Join(sectionNames(), ", "))
		}
	}
	b := &bench{settings: s, report: newReport(), say: say}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, part := range sections() {
		if s.only != "" && !slices.Contains(chosen, part.name) {
			continue
		}
		if err = part.run(ctx, b); err != nil {
			err = fmt.Errorf("measure %s: %w", part.name, err)
			break // show what was measured so far
		}
	}
	b.report.finish()
	b.report.show(os.Stdout)
	return b.report.ok(), errors.Join(err, b.report.write(s.out))
}

// say logs a step that takes time.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
