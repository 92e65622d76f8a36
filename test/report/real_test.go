package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// A pod leaks on a real containerd and is stopped. The page, history and explain all show it.
func TestRealStop(t *testing.T) {
	node := lab.Shared(t, lab.Containerd2)
	if err := node.LimitPodsMemory(1 << 30); err != nil {
		t.Fatal(err)
	}
	leaky := pod(t, node, "leaky", "-mib", "512", "-rate", "400", "-when", "/ctl/go")
	pod(t, node, "calm", "-mib", "16")
	off := ""
	for name := range policy.DefaultHard() {
		off += fmt.Sprintf("%q = \"0%%\"\n", name)
	}
	s := serve(t, t.TempDir(), node.Config()+fmt.Sprintf("[eviction.hard]\n%s%q = %q\n", off, "allocatableMemory.available", "700Mi"))
	s.Within(harness.Patience, "the pods to be listed", func() bool {
		st, err := s.Client().Status(context.Background())
		return err == nil && st.Pods == 2
	})
	if err := os.WriteFile(filepath.Join(node.KubeletRoot(), "pods", leaky.UID, "volumes/kubernetes.io~empty-dir/ctl/go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var stop api.Pass
	s.Within(harness.Patience, "the stop to settle", func() bool {
		passes, err := s.Client().History(context.Background(), 0)
		if i := slices.IndexFunc(passes, func(p api.Pass) bool { return p.Stop != nil }); i >= 0 {
			stop = passes[i]
		}
		return err == nil && slices.ContainsFunc(passes, func(p api.Pass) bool { return len(p.Settled) > 0 })
	})
	s.Within(harness.Patience, "samples after the stop", func() bool {
		windows, err := s.Client().Windows(context.Background())
		return err == nil && len(windows) == 1 && windows[0].At[len(windows[0].At)-1] > stop.At+2e9
	})

	told := s.ask(0, "explain", fmt.Sprint(stop.ID))
	for _, want := range []string{
		"stop default/leaky (hard, grace 0s)", "default/leaky before default/calm, by the first key in which they differ: ", "over_by=",
		"Ranked for allocatableMemory.available", "stopped default/leaky", "freed of", "hard, below 700Mi by ",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("explain does not say %q:\n%s", want, told)
		}
	}
	var e struct {
		APIVersion string
		Pass       api.Pass
		Effect     api.StopView
	}
	if err := json.Unmarshal([]byte(s.ask(0, "explain", fmt.Sprint(stop.ID), "-o", "json")), &e); err != nil || e.APIVersion != api.APIVersion ||
		e.Pass.ID != stop.ID || len(e.Pass.Ranked) != 2 || !e.Effect.Result.Emptied {
		t.Errorf("explain -o json: %+v, %v", e, err)
	}
	if told := s.ask(0, "history", "--since", "1h"); !strings.Contains(told, "stop default/leaky") || !strings.Contains(told, "ago") {
		t.Errorf("history --since 1h:\n%s", told)
	}

	b := open(t, s.report())
	article := fmt.Sprintf("#pass-%d", stop.ID)
	if text := ask[string](b, fmt.Sprintf("document.querySelector(%q).innerText", article)); !strings.Contains(text, "default/leaky stopped") ||
		!strings.Contains(text, "threshold hard 700Mi") || !regexp.MustCompile(`stop \+0\.000 s · dead \+\d+\.\d`).MatchString(text) {
		t.Errorf("the page says %q", text)
	}
	for _, ink := range []string{"--line", "--limit", "--mark"} {
		if n := b.inked(ink); n[0] < 20 {
			t.Errorf("the stop's plot has %d pixels of %s", n[0], ink)
		}
	}
	b.at(1200, 900)
	b.fits()
	b.readable()
	b.quiet()
	b.picture("real")
}

func pod(t *testing.T, node *lab.Lab, name string, args ...string) *lab.RunningPod {
	t.Helper()
	return harness.RunPod(t, node, lab.PodSpec{Name: name, Containers: []lab.ContainerSpec{
		{Name: "main", Args: append([]string{"hog"}, args...), EmptyDirs: map[string]string{"ctl": "/ctl"}},
	}})
}
