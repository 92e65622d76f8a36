package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// idleCost is the cost of an idle guard.
type idleCost struct {
	Seconds     float64 `json:"seconds"`
	Pods        int     `json:"pods"`
	StartCPU    float64 `json:"start_cpu_ms"` // total CPU time until it was idle
	CPUPercent  float64 `json:"cpu_percent"`  // percent of one core
	Wakeups     float64 `json:"wakeups_per_second"`
	Written     int64   `json:"written_bytes"` // written to block devices
	ResidentMiB float64 `json:"resident_mib"`
	AnonMiB     float64 `json:"resident_anonymous_mib"`
	LockedMiB   float64 `json:"locked_address_space_mib"` // locked once touched; non-resident pages cost nothing
	Threads     int     `json:"threads"`
	Descriptors int     `json:"descriptors"`
}

// idleLevel is the idle guard's threshold: the default.
const idleLevel = 100 * mib

// settleTime is the default time from the guard's start, or from the last breach, until it counts
// as idle. The guard runs its housekeeping once a minute: the first run reads the details of all
// containers from the runtime, and each run returns unused memory to the kernel.
const settleTime = 75 * time.Second

// measureIdle measures an idle guard.
func measureIdle(ctx context.Context, b *bench) (err error) {
	if err := b.stage(ctx); err != nil {
		return err
	}
	g, err := b.startCriguard(ctx, killDirect, b.lab.Endpoint(), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.set(ctx, idleLevel); err != nil {
		return err
	}
	if err := pause(ctx, b.settle); err != nil {
		return err
	}
	b.say("criguard: idle for %s", b.idle)
	first, err := readUse(g.pid())
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, b.idle); err != nil {
		return err
	}
	took := time.Since(begin)
	last, err := readUse(g.pid())
	if err != nil {
		return err
	}
	b.report.Idle = &idleCost{
		Seconds: took.Seconds(), Pods: len(b.pods),
		StartCPU:    float64(first.cpu) / float64(time.Millisecond),
		CPUPercent:  100 * (last.cpu - first.cpu).Seconds() / took.Seconds(),
		Wakeups:     float64(last.switches-first.switches) / took.Seconds(),
		Written:     last.written - first.written,
		ResidentMiB: float64(last.resident) / mib, AnonMiB: float64(last.anon) / mib, LockedMiB: float64(last.locked) / mib,
		Threads: last.threads, Descriptors: last.descriptors,
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// use is a process's resource use (proc(5)).
type use struct {
	cpu                    time.Duration
	switches               int64 // voluntary context switches
	written                int64
	resident, anon, locked int64 // bytes
	threads, descriptors   int
}

func readUse(pid int) (use, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	var u use
	tasks, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return u, fmt.Errorf("read use of process %d: %w", pid, err)
	}
	u.threads = len(tasks)
	for _, task := range tasks {
		at := filepath.Join(dir, "task", task.Name())
		text, err := os.ReadFile(filepath.Join(at, "schedstat"))
		if err != nil {
			continue // the thread has ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ran, 10, 64)
		u.cpu += time.Duration(n)
		u.switches += readKeys(filepath.Join(at, "status"))["voluntary_ctxt_switches"]
	}
	status := readKeys(filepath.Join(dir, "status"))
	u.resident, u.anon, u.locked = status["VmRSS"]<<10, status["RssAnon"]<<10, status["VmLck"]<<10
	u.written = readKeys(filepath.Join(dir, "io"))["write_bytes"]
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	u.descriptors = len(fds)
	return u, err
}

// readKeys parses lines of the form "key: number".
func readKeys(path string) map[string]int64 {
	keys := map[string]int64{}
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if fields := strings.Fields(value); len(fields) > 0 {
			keys[key], _ = strconv.ParseInt(fields[0], 10, 64)
		}
	}
	return keys
}

func (r *report) printIdle(w io.Writer) {
	c := r.Idle
	if c == nil {
		return
	}
	title(w, fmt.Sprintf("Idle for %.0f s with %d pods", c.Seconds, c.Pods))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "CPU ms of the start\tCPU % of a core\twakeups/s\twritten bytes\tresident MiB\tanonymous\tlocked when touched\tthreads\tdescriptors\t")
	fmt.Fprintf(t, "%.0f\t%.3f\t%.1f\t%d\t%.1f\t%.1f\t%.0f\t%d\t%d\t\n",
		c.StartCPU, c.CPUPercent, c.Wakeups, c.Written, c.ResidentMiB, c.AnonMiB, c.LockedMiB, c.Threads, c.Descriptors)
	_ = t.Flush()
}
