package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/lab"
)

// litter is the cost of a leak next to a number of empty pod cgroups.
type litter struct {
	Empty int    `json:"empty_pod_cgroups"`
	Dead  spread `json:"dead_ms"`
	Pass  spread `json:"killing_pass_ms"`
	Wrong int    `json:"wrong"`
}

// churn is the node's state after a number of pods have come and gone, without a kubelet.
type churn struct {
	Pods        int     `json:"pods"`
	Cgroups     int     `json:"pod_cgroups"`
	SlabMiB     float64 `json:"slab_mib"`
	UnreclMiB   float64 `json:"slab_unreclaimable_mib"`
	ResidentMiB float64 `json:"resident_mib"`
	AnonMiB     float64 `json:"resident_anonymous_mib"`
	DeadMs      float64 `json:"dead_ms"`
	PassMs      float64 `json:"killing_pass_ms"`
	Wrong       bool    `json:"wrong"`
}

// measureEmpty lets hogs leak on a node without empty pod cgroups and on one with many,
// alternately.
func measureEmpty(ctx context.Context, b *bench) (err error) {
	if err := b.stage(ctx); err != nil {
		return err
	}
	// criguard must not remove the cgroups during the measurement.
	g, err := b.startConfigured(ctx, "[containers]\ngc = false\n")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	rows := []litter{{}, {Empty: b.empty}}
	for i := range rows {
		row := &rows[i]
		b.say("%s: %d tries beside %d empty pod cgroups", g.name(), b.tries, row.Empty)
		remove, err := b.makeEmpty(row.Empty)
		if err != nil {
			return errors.Join(err, remove())
		}
		l := latency{Guard: g.name(), Rate: goalRate, HeadroomMiB: b.headroom}
		g.passes = nil
		err = b.tryAll(ctx, g, &l, b.tries, trouble{})
		if err = errors.Join(err, remove()); err != nil {
			return err
		}
		row.Dead, row.Wrong = l.Dead, l.Wrong
		for _, took := range g.passes {
			row.Pass.addTime(took)
		}
		row.Pass.finish()
	}
	b.report.Empty = rows
	return nil
}

// makeEmpty creates n pod cgroups without processes, and returns a function that removes them.
func (b *bench) makeEmpty(n int) (remove func() error, err error) {
	parent := b.lab.MemoryCgroupDir(filepath.Join(b.lab.PodsCgroup(), "besteffort"))
	var made []string
	remove = func() error {
		var errs []error
		for _, dir := range made {
			errs = append(errs, os.Remove(dir))
		}
		return errors.Join(errs...)
	}
	for i := range n {
		dir := filepath.Join(parent, fmt.Sprintf("pod00000000-0000-0000-0000-%012d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return remove, err
		}
		made = append(made, dir)
	}
	return remove, nil
}

// churnRows is the number of measurements during a churn.
const churnRows = 10

// measureChurn starts and removes pods as on a node without a kubelet, where only criguard removes
// their cgroups, with a leak now and then.
func measureChurn(ctx context.Context, b *bench) (err error) {
	if err := b.stage(ctx); err != nil {
		return err
	}
	client, err := cri.Dial(b.lab.Endpoint(), time.Minute)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	g, err := b.startConfigured(ctx, "[containers]\ngc = true\n")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	for done := 0; ; {
		row, err := b.churnRow(ctx, g, done)
		if err != nil {
			return err
		}
		b.report.Churn = append(b.report.Churn, row)
		b.say("  %s", row.line())
		if done >= b.churn {
			return nil
		}
		n := min(max(b.churn/churnRows, 1), b.churn-done)
		if err := b.comeAndGo(ctx, client, done, n); err != nil {
			return err
		}
		done += n
	}
}

// comeAndGo runs pods and removes them through the runtime only.
func (b *bench) comeAndGo(ctx context.Context, client *cri.Client, first, n int) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		errs   []error
		places = make(chan struct{}, atOnce)
	)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			spec := standby(3 * (first + i))
			spec.Name = fmt.Sprintf("churn-%d", first+i)
			err := b.onePod(ctx, client, spec)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b *bench) onePod(ctx context.Context, client *cri.Client, spec lab.PodSpec) error {
	pod, err := b.lab.RunPod(ctx, spec)
	if err != nil {
		return err
	}
	return errors.Join(
		client.StopSandbox(ctx, pod.SandboxID), client.RemoveSandbox(ctx, pod.SandboxID),
		os.RemoveAll(pod.LogDirectory), os.RemoveAll(filepath.Join(b.lab.KubeletRoot(), "pods", pod.UID)),
	)
}

// churnRow lets a hog leak and then reads the node's state.
func (b *bench) churnRow(ctx context.Context, g *criguard, pods int) (churn, error) {
	g.passes = nil
	l := latency{Guard: g.name(), Rate: goalRate, HeadroomMiB: b.headroom}
	if err := b.tryAll(ctx, g, &l, 1, trouble{}); err != nil {
		return churn{}, err
	}
	row := churn{Pods: pods, DeadMs: l.Dead.Median, Wrong: l.Wrong > 0}
	if n := len(g.passes); n > 0 {
		row.PassMs = float64(g.passes[n-1]) / float64(time.Millisecond)
	}
	parents := []string{"", "burstable", "besteffort"}
	for _, class := range parents {
		entries, err := os.ReadDir(b.lab.MemoryCgroupDir(filepath.Join(b.lab.PodsCgroup(), class)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return row, err
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), "pod") {
				row.Cgroups++
			}
		}
	}
	use, err := readUse(g.pid())
	if err != nil {
		return row, err
	}
	info := readKeys("/proc/meminfo")
	row.SlabMiB, row.UnreclMiB = float64(info["Slab"])/1024, float64(info["SUnreclaim"])/1024
	row.ResidentMiB, row.AnonMiB = float64(use.resident)/mib, float64(use.anon)/mib
	return row, nil
}

func (c *churn) line() string {
	return fmt.Sprintf("after %d pods: %d pod cgroups, slab %.0f MiB (%.0f unreclaimable), %.1f MiB resident, killing pass %.2f ms, hog dead after %.1f ms",
		c.Pods, c.Cgroups, c.SlabMiB, c.UnreclMiB, c.ResidentMiB, c.PassMs, c.DeadMs)
}

func (r *report) printLitter(w io.Writer) {
	if len(r.Empty) > 0 {
		title(w, "Beside empty pod cgroups (milliseconds, median / p99)")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "empty\tdead\tkilling pass\twrong\ttries\t")
		for i := range r.Empty {
			l := &r.Empty[i]
			fmt.Fprintf(t, "%d\t%s\t%.2f / %.2f\t%d\t%d\t\n", l.Empty, l.Dead, l.Pass.Median, l.Pass.P99, l.Wrong, l.Dead.N)
		}
		_ = t.Flush()
	}
	if len(r.Churn) > 0 {
		title(w, "Pods that come and go without a kubelet")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "pods\tpod cgroups\tslab MiB\tunreclaimable\tresident MiB\tanonymous\tkilling pass ms\tdead ms\t")
		for i := range r.Churn {
			c := &r.Churn[i]
			fmt.Fprintf(t, "%d\t%d\t%.0f\t%.0f\t%.1f\t%.1f\t%.2f\t%.1f\t\n",
				c.Pods, c.Cgroups, c.SlabMiB, c.UnreclMiB, c.ResidentMiB, c.AnonMiB, c.PassMs, c.DeadMs)
		}
		_ = t.Flush()
	}
}
