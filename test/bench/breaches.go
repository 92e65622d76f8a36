package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/lab"
)

// endurance compares the guard's resources after the first breaches with those after the last.
type endurance struct {
	Breaches int      `json:"breaches"`
	Dead     spread   `json:"dead_ms"`
	Early    holdings `json:"after_the_first_twenty"`
	Late     holdings `json:"after_the_last"`
	Leaks    []string `json:"leaks"`
}

// holdings are resources that could leak.
type holdings struct {
	Shims       int     `json:"shims"`
	Descriptors int     `json:"descriptors"`
	Threads     int     `json:"threads"`
	Goroutines  int     `json:"goroutines"`
	ResidentMiB float64 `json:"resident_mib"`
	AnonMiB     float64 `json:"resident_anonymous_mib"`
}

// warmUp is the number of breaches before holdings count: by then, the guard keeps its full record
// of the last sixteen stops.
const warmUp = 20

// A restarted hog keeps its UID, like a static pod.
const hogUID = "8a6e0b7f-3f1d-4c11-9a6e-6f1c4c8e2d5c"

// measureBreaches makes the same pod breach the threshold many times under one guard.
func measureBreaches(ctx context.Context, b *bench) (err error) {
	if err := b.stage(ctx); err != nil {
		return err
	}
	g, err := b.startCriguard(ctx, killDirect, b.lab.Endpoint(), false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	n := max(b.breaches, warmUp)
	b.say("criguard: %d breaches in a row", n)
	e := endurance{Breaches: n, Leaks: []string{}}
	for i := range n {
		spec := lab.PodSpec{Name: "again", UID: hogUID, Attempt: uint32(i)}
		t, err := b.try(ctx, g, spec, goalRate, b.headroom, trouble{})
		if err != nil && !errors.Is(err, errNoBreach) {
			return err
		}
		if e.Dead.addTime(t.dead); i == warmUp-1 {
			if e.Early, err = b.holdings(ctx, g); err != nil {
				return err
			}
		}
	}
	e.Dead.finish()
	if e.Late, err = b.holdings(ctx, g); err != nil {
		return err
	}
	e.judge(len(b.pods))
	b.report.Breaches = &e
	return nil
}

// slack is the tolerated difference in memory between two moments of the same state, in MiB: the
// garbage of a few breaches.
const slack = 2

// judge lists the resources that have grown.
func (e *endurance) judge(pods int) {
	if e.Late.Shims != pods {
		e.Leaks = append(e.Leaks, fmt.Sprintf("%d shims for %d pods", e.Late.Shims, pods))
	}
	for _, x := range []struct {
		name        string
		early, late int
	}{
		{"descriptors", e.Early.Descriptors, e.Late.Descriptors}, {"threads", e.Early.Threads, e.Late.Threads},
		{"goroutines", e.Early.Goroutines, e.Late.Goroutines},
	} {
		if x.late > x.early {
			e.Leaks = append(e.Leaks, fmt.Sprintf("%s grew from %d to %d", x.name, x.early, x.late))
		}
	}
	if e.Late.AnonMiB > e.Early.AnonMiB+slack {
		e.Leaks = append(e.Leaks, fmt.Sprintf("memory grew from %.1f to %.1f MiB", e.Early.AnonMiB, e.Late.AnonMiB))
	}
}

// holdings counts the resources once the runtime and the guard have finished their bookkeeping.
func (b *bench) holdings(ctx context.Context, g *criguard) (holdings, error) {
	var h holdings
	if err := g.listed(ctx, len(b.pods)); err != nil {
		return h, err
	}
	u, err := b.settledUse(ctx, g.pid())
	if err != nil {
		return h, err
	}
	goroutines, err := readMetric(ctx, rundir.Dir(g.dir), "go_goroutines")
	h = holdings{
		Shims: len(b.lab.Shims()), Descriptors: u.descriptors, Threads: u.threads, Goroutines: goroutines,
		ResidentMiB: float64(u.resident) / mib, AnonMiB: float64(u.anon) / mib,
	}
	return h, err
}

// settledUse reads a guard's resources once it has settled, with the lowest memory use in that
// time: only a garbage collection separates live memory from garbage.
func (b *bench) settledUse(ctx context.Context, pid int) (use, error) {
	least, err := readUse(pid)
	for until := time.Now().Add(b.settle); err == nil && time.Now().Before(until); {
		if err := pause(ctx, time.Second); err != nil {
			return use{}, err
		}
		var u use
		u, err = readUse(pid)
		u.resident, u.anon = min(u.resident, least.resident), min(u.anon, least.anon)
		least = u
	}
	return least, err
}

// readMetric fetches one of the service's metrics.
func readMetric(ctx context.Context, dir rundir.Dir, name string) (int, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir.Socket())
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://criguard/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("ask for metrics: %w", err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("ask for metrics: no %s: %w", name, os.ErrNotExist)
}

func (r *report) printBreaches(w io.Writer) {
	e := r.Breaches
	if e == nil {
		return
	}
	title(w, fmt.Sprintf("%d breaches of one pod in a row: hog dead after %s ms", e.Breaches, e.Dead))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "after\tshims\tdescriptors\tthreads\tgoroutines\tresident MiB\tanonymous\t")
	for _, row := range []struct {
		after int
		holdings
	}{{warmUp, e.Early}, {e.Breaches, e.Late}} {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t\n",
			row.after, row.Shims, row.Descriptors, row.Threads, row.Goroutines, row.ResidentMiB, row.AnonMiB)
	}
	_ = t.Flush()
}
