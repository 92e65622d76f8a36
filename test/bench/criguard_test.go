package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/policy"
)

// thresholds lists those that are on, with the grace period of soft ones.
func thresholds(t *testing.T, text string) (found []string, fleet bool) {
	t.Helper()
	cfg := configtest.Parse(t, text)
	for _, th := range cfg.Eviction.Thresholds {
		if th.Signal == policy.PIDAvailable {
			continue // its default, which no hog meets
		}
		text := fmt.Sprintf("%s:%s %d", th.Signal, th.Kind, th.Value.Of(1<<40))
		if th.Kind == policy.Soft {
			text += " " + th.Grace.Round(time.Second).String()
		}
		found = append(found, text)
	}
	slices.Sort(found)
	return found, cfg.Fleet.Enabled
}

// A guard is armed on its own signal alone, and on none before it is armed. In a fleet it also has a soft threshold.
func TestRules(t *testing.T) {
	const level = 123 << 20
	for _, tt := range []struct {
		signal policy.Signal
		level  int64
		more   string
		want   []string
		fleet  bool
	}{
		{policy.MemoryAvailable, 0, "", nil, false},
		{policy.MemoryAvailable, level, "", []string{"memory.available:hard 128974848"}, false},
		{policy.MeminfoAvailable, 0, "", nil, false},
		{policy.MeminfoAvailable, level, "", []string{"meminfo.available:hard 128974848"}, false},
		{policy.MemoryAvailable, level, fleetCases()[0].rules(2 * level), []string{"memory.available:hard 128974848", "memory.available:soft 257949696 1h0m0s"}, false},
		{policy.MemoryAvailable, level, fleetCases()[3].rules(2 * level), []string{"memory.available:hard 128974848", "memory.available:soft 257949696 1s"}, true},
		{policy.MemoryAvailable, 0, "[containers]\ngc = false\n", nil, false},
	} {
		g := &criguard{direct: killDirect, signal: tt.signal, dir: "/run/bench", more: tt.more}
		if got, fleet := thresholds(t, g.rules(tt.level)); !slices.Equal(got, tt.want) || fleet != tt.fleet {
			t.Errorf("%s at %d, %q: %q, in a fleet: %v, want %q, %v", tt.signal, tt.level, tt.more, got, fleet, tt.want, tt.fleet)
		}
	}
}

// A slow try shows which pass waited, and for what.
func TestAccount(t *testing.T) {
	const crossed = time.Hour
	g := &criguard{recorded: []api.Pass{
		{
			ID: 7, At: api.Duration(crossed + 1200*time.Microsecond), Wake: "memcg", Took: api.Duration(251 * time.Millisecond), Held: api.HeldUnlisted,
			Met: []api.MetView{{Threshold: "memory.available:hard", Available: 99 * mib, Target: 100 * mib}},
		},
		{
			ID: 8, At: api.Duration(crossed + 300*time.Millisecond), Wake: "timer", Took: api.Duration(2 * time.Millisecond),
			Need: &api.Need{Need: 50 * mib, Culprit: "bench/hog-1", CulpritGrowth: 64 * mib}, Stop: &api.StopView{Pod: "bench/hog-1"},
		},
	}}
	want := "\n    pass 7, 1.2ms after the crossing: woken by memcg, took 251ms; memory.available:hard met for 0s, 1.0 MiB below its target; held by \"unlisted pod\"" +
		"\n    pass 8, 300ms after the crossing: woken by timer, took 2ms; culprit \"bench/hog-1\", growth 64.0 MiB/s of a need of 50.0 MiB; stops bench/hog-1"
	if got := g.account(crossed); got != want {
		t.Errorf("%s\nwant%s", got, want)
	}
}

// The benchmark runs criguard as the unit does.
func TestRunsLikeTheUnit(t *testing.T) {
	unit, err := os.ReadFile("../../systemd/criguard.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"\nNice=" + unitNice + "\n", "\nTimerSlackNSec=" + unitSlack.String() + "\n"} {
		if !strings.Contains(string(unit), line) {
			t.Errorf("criguard.service does not have %q", strings.TrimSpace(line))
		}
	}
}

// A program that is started with a slack has it.
func TestStartWithSlack(t *testing.T) {
	for _, slack := range []time.Duration{unitSlack, 2 * time.Millisecond} {
		cmd := exec.Command("sleep", "60")
		if err := startWithSlack(cmd, slack); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", cmd.Process.Pid))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := strings.TrimSpace(string(text)); err != nil || got != fmt.Sprint(slack.Nanoseconds()) {
			t.Errorf("the program's slack is %q, %v; want %v", got, err, slack)
		}
	}
}
