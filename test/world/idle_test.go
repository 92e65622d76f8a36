package world

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
)

// passes returns how many passes the service has made, by what woke the loop.
func (w *World) passes(t *testing.T) map[string]int {
	t.Helper()
	var text bytes.Buffer
	if err := control.NewClientOver(rundir.Dir(w.service.dir), w.service.control.dial).Metrics(context.Background(), &text); err != nil {
		t.Fatal(err)
	}
	by := map[string]int{}
	for line := range strings.Lines(text.String()) {
		var wake string
		var n int
		if _, err := fmt.Sscanf(line, "criguard_passes_total{wake=%q} %d", &wake, &n); err == nil && n > 0 {
			by[wake] = n
		}
	}
	return by
}

// In a minute in which nothing happens, the service makes a pass each second, and does nearly everything else at the same times:
// each further time would wake threads of the program.
func TestIdleMinute(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		t.Run(fmt.Sprint("v1 ", v1), func(t *testing.T) {
			run(t, func(t *testing.T) (*World, time.Duration) {
				w := New(t, v1, 24*gib, critest.Containerd2)
				for i := range 110 {
					w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 20 * mib})
				}
				w.Start()
				var before map[string]int
				saved, last := 0, os.FileInfo(nil)
				begin, minute := 80*time.Second, time.Minute
				w.At(begin, func(w *World) {
					before = w.passes(t)
					_, _ = w.awake.take()
				})
				for at := begin; at < begin+minute; at += time.Second {
					w.At(at, func(w *World) {
						if info, err := os.Stat(filepath.Join(w.service.dir, "samples.json")); err != nil {
							t.Error(err)
						} else if !os.SameFile(info, last) {
							saved, last = saved+1, info
						}
					})
				}
				w.At(begin+minute, func(w *World) {
					times, what := w.awake.take()
					passes := map[string]int{}
					sum := 0
					for by, n := range w.passes(t) {
						if n -= before[by]; n > 0 {
							passes[by], sum = n, sum+n
						}
					}
					t.Logf("awake %d times: passes %v, samples saved %d times, did %v", times, passes, saved, what)
					if sum > 61 || passes["timer"] != sum || saved > 9 || what["disk"] > 32 || times > 75 {
						t.Errorf("awake %d times for %d passes (%v), %d readings of disks, %d saves", times, sum, passes, what["disk"], saved)
					}
				})
				return w, begin + minute + time.Second
			})
		})
	}
}

// The service uses one processor only while nothing is near a threshold, and all of them well before it stops a pod.
func TestProcessors(t *testing.T) {
	run(t, func(t *testing.T) (*World, time.Duration) {
		w := New(t, false, 8*gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`)
		w.hard = 100 * mib
		for i := range 10 {
			w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 200 * mib})
		}
		leak := w.addPod(&pod{spec: critest.PodSpec{Name: "leak"}, used: 10 * mib})
		w.Start()
		w.At(90*time.Second, func(*World) { leak.rate, leak.leaks = 700*mib, time.Now() })
		for _, c := range []struct {
			at    time.Duration
			what  string
			uses  int64
			kills int
		}{
			{59 * time.Second, "just started", nodeProcessors, 0},
			{90 * time.Second, "at rest", 1, 0},
			{97 * time.Second, "a second before the threshold", nodeProcessors, 0},
			{150 * time.Second, "just after a stop", nodeProcessors, 1},
			{170 * time.Second, "at rest again", 1, 1},
		} {
			w.At(c.at, func(w *World) {
				if uses := w.uses.Load(); uses != c.uses || len(w.kills) != c.kills {
					t.Errorf("%s: %d processors, want %d; stopped %v", c.what, uses, c.uses, w.kills)
				}
			})
		}
		return w, 175 * time.Second
	})
}
