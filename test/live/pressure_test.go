package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// always is a threshold that is met however little runs: pressure that no stop
// relieves.
const always = "\"meminfo.available\" = \"99.9%\"\n"

// A pod that ignores SIGTERM is being stopped when the guard is told to end: that
// takes less than five seconds (newLive's cleanup sees to it).
func TestEndDuringStop(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd1))
	n.pod(lab.PodSpec{Name: "stubborn", Containers: one("ignore-term")})
	n.configure("[eviction.hard]\n" + off + "[eviction.soft]\n" + always + "[eviction.soft_grace_period]\n\"meminfo.available\" = \"100ms\"\n")
	n.start()
	n.until("the stop to begin", func() bool { return len(n.status().InFlight) == 1 })
	n.stop()
	if !strings.Contains(n.logged(), "sandbox not stopped") {
		t.Errorf("the log does not say what became of the stop:\n%s", n.logged())
	}
}

// A hard threshold that comes up during a soft stop's grace period ends it.
func TestHardEscalatesSoft(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd2))
	n.pod(lab.PodSpec{Name: "stubborn", Containers: one("ignore-term")})
	soft := "[eviction.soft]\n" + always + "[eviction.soft_grace_period]\n\"meminfo.available\" = \"100ms\"\n"
	n.configure("[eviction.hard]\n" + off + soft)
	n.start()
	n.until("the soft stop to begin", func() bool { return len(n.status().InFlight) == 1 })
	n.configure("[eviction.hard]\n" + off + always + soft)
	begin := time.Now()
	if err := n.cmd.Process.Signal(hangup); err != nil {
		t.Fatal(err)
	}
	n.until("the stop to settle", func() bool {
		return slices.ContainsFunc(n.history(), func(p guard.Pass) bool {
			return len(p.Settled) == 1 && p.Settled[0].Result.Emptied
		})
	})
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("escalated after %s; the grace period was 30 s", took)
	}
	if !strings.Contains(n.logged(), "ending the grace period") {
		t.Error("the log does not say that the grace period was ended")
	}
}

// The same pod, made again during pressure, is stopped again, further and further
// apart.
func TestHoldDown(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd1))
	n.configure("[backoff]\nfirst = \"1s\"\n[budget]\nhard = {burst = 50, every = \"1s\"}\nper_hour = 0\nbreaker = 0\n[eviction.hard]\n" + off + always)
	n.start()
	for attempt := range uint32(4) {
		n.pod(lab.PodSpec{Name: "again", UID: "11111111-2222-3333-4444-555555555555", Attempt: attempt,
			Containers: []lab.ContainerSpec{{Name: "main", Attempt: attempt}}})
		n.until(fmt.Sprintf("stop %d", attempt+1), func() bool { return len(n.stops()) == int(attempt)+1 })
	}
	var gaps []time.Duration
	stops := n.stops()
	for i := 1; i < len(stops); i++ {
		gaps = append(gaps, stops[i].At-stops[i-1].At)
	}
	t.Logf("stopped %v apart", gaps)
	for i, least := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if gaps[i] < least {
			t.Errorf("stop %d came %s after the one before, want %s or more", i+2, gaps[i], least)
		}
	}
}

// While something outside every pod eats the memory, three stops that do not move
// the signal are the last, and status says so.
func TestBreaker(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd2))
	for i := range 5 {
		n.pod(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i), Containers: one("pause")})
	}
	n.configure("[budget]\nhard = {burst = 50, every = \"1s\"}\nper_hour = 0\n[eviction.hard]\n" + off + always)
	workload := filepath.Join(n.dir, "workload")
	if err := lab.BuildWorkload(context.Background(), workload); err != nil {
		t.Fatal(err)
	}
	hog := exec.Command(workload, "hog", "-mib", "1500", "-rate", "60")
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hog.Process.Kill(); _ = hog.Wait() })
	n.start()
	n.until("the alarm", func() bool { return len(n.status().Alarms) > 0 })
	st := n.status()
	if got := len(n.stops()); got != 3 {
		t.Errorf("%d pods were stopped, want 3", got)
	}
	if st.Held != "" && st.Held != guard.HeldBreaker {
		t.Errorf("held by %q", st.Held)
	}
	out, _ := exec.Command(binary, n.args("status")...).Output()
	if !bytes.Contains(out, []byte("ALARM")) {
		t.Errorf("status does not tell the alarm:\n%s", out)
	}
}

// Observe mode says what it would stop, and stops nothing.
func TestObserve(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd1))
	p := n.pod(lab.PodSpec{Name: "watched", Containers: one("pause")})
	n.configure("[eviction.hard]\n" + off + always)
	n.start("--observe")
	n.until("the word", func() bool { return strings.Contains(n.logged(), "would stop sandbox") })
	stops := n.stops()
	if len(stops) != 1 || !stops[0].Stop.DryRun || stops[0].Stop.Pod != "default/watched" {
		t.Errorf("stops: %+v", stops)
	}
	if _, err := n.lab.PID(context.Background(), p.Containers[0].ID); err != nil {
		t.Errorf("the pod does not run any more: %v", err)
	}
}

// What was recorded during a real stop replays to the same victim.
func TestRecordReplays(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd2))
	n.pod(lab.PodSpec{Name: "steady", Containers: one("pause")})
	n.configure("[eviction.hard]\n" + off)
	limit := n.available(policy.MemoryAvailable) - 400<<20
	n.configure(fmt.Sprintf("[eviction.hard]\n%s[eviction.soft]\n\"memory.available\" = \"%d\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"2s\"\n", off, limit))
	trace := filepath.Join(n.dir, "trace.jsonl")
	record := exec.Command("sh", "-c", `exec "$0" "$@" > `+trace, binary)
	record.Args = append(record.Args, n.args("record", "--interval", "100ms", "--for", "30s")...)
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.pod(lab.PodSpec{Name: "leaky", Containers: one("hog", "-mib", "800", "-rate", "800", "-term-delay", "3s")})
	n.until("the stop", func() bool { return len(n.stops()) == 1 })
	if err := record.Process.Signal(interrupt); err != nil {
		t.Fatal(err)
	}
	if err := record.Wait(); err != nil {
		t.Fatalf("criguard record: %v", err)
	}
	if got := n.stops()[0].Stop.Pod; got != "default/leaky" {
		t.Fatalf("stopped %s, want default/leaky", got)
	}
	out, err := n.ask("simulate", trace)
	if err != nil {
		t.Fatalf("criguard simulate: %v", err)
	}
	var victims []string
	for line := range strings.Lines(out) {
		var p guard.SimulatedPass
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Stop != nil {
			victims = append(victims, p.Stop.Pod)
		}
	}
	if len(victims) == 0 || victims[0] != "default/leaky" {
		t.Errorf("the replay stops %v, want default/leaky", victims)
	}
}
