package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/reclaim"
)

// A running service does the pruning, and criguard prints its reports unchanged. If --endpoint
// names another runtime, criguard prunes it directly.
func TestPruneAsksTheService(t *testing.T) {
	dir := runDir(t)
	l, err := net.Listen("unix", rundir.Dir(dir).Socket())
	if err != nil {
		t.Fatal(err)
	}
	var pruned atomic.Int32
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/prune" {
			pruned.Add(1)
			_, _ = io.WriteString(w, `{"removed":{"kind":"image","id":"a","name":"x:1","age":"1s","why":"not in use"}}
{"reports":[{"step":"images","removed":[{"kind":"image","id":"a","name":"x:1","age":"1s","why":"not in use"}],"freed":3,"met":false,"took":"5s"}],"done":true}
`)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Status{Runtime: api.RuntimeStatus{Endpoint: "unix:///run/one.sock", Up: true}})
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-done }()
	for _, args := range [][]string{nil, {"--endpoint", "/run/one.sock"}, {"--endpoint", "unix:/run/one.sock"}} {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append([]string{"prune", "--images", "-o", "json", "--run-dir", dir}, args...))
		root.SetOut(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got struct {
			APIVersion string
			DryRun     bool
			Steps      []map[string]any
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.APIVersion != api.APIVersion || len(got.Steps) != 1 || got.Steps[0]["freed"] != 3.0 {
			t.Errorf("%v: %s, %v", args, out.String(), err)
		}
	}
	if code := execute([]string{"prune", "--run-dir", dir, "--endpoint", dir + "/other.sock"}); code != cli.ExitUnreachable || pruned.Load() != 3 {
		t.Errorf("another runtime: exit code %d, the service pruned %d times", code, pruned.Load())
	}
}

// A prune that removes nothing prints no empty table, but what each step keeps and why. --verbose lists that instead.
func TestPruneOfNothing(t *testing.T) {
	reports := []reclaim.Report{{Step: reclaim.StepContainers}, {Step: reclaim.StepImages, Kept: []reclaim.Item{
		{Kind: reclaim.KindImage, Name: "a", Why: "in use: container c"}, {Kind: reclaim.KindImage, Name: "b", Why: "in use: sandbox image"}, {Kind: reclaim.KindImage, Name: "c", Why: "pinned"},
	}}}
	for dry, want := range map[bool]string{true: "would remove 0\n", false: "removed 0, 0 freed\n"} {
		var out bytes.Buffer
		if printReports(&out, reports, dry, false); out.String() != want+"images kept: in use (2), pinned (1)\n" {
			t.Errorf("dry run %t: %s", dry, out.String())
		}
		out.Reset()
		if printReports(&out, reports, dry, true); !strings.HasPrefix(out.String(), "WHAT ") || !strings.HasSuffix(out.String(), "\n"+want) {
			t.Errorf("dry run %t, verbose: %s", dry, out.String())
		}
	}
}

// How many inodes an image frees is not known, so a dry run for inodes does not say that all its images would be removed.
func TestPruneDryRunForInodes(t *testing.T) {
	var out bytes.Buffer
	reports := []reclaim.Report{{Step: reclaim.StepImages, DryRun: true, AtMost: true, Removed: []reclaim.Item{{Kind: reclaim.KindImage, Name: "a"}}}}
	if printReports(&out, reports, true, false); !strings.HasSuffix(out.String(), "\nwould remove at most 1\n") {
		t.Error(out.String())
	}
}

// The hint about unknown ages holds with and without a service.
func TestUnknownAges(t *testing.T) {
	var out bytes.Buffer
	printUnknown(&out, []reclaim.Item{{Why: reclaim.WhyAgeUnknown}, {Why: reclaim.WhyAgeUnknown + "; held"}, {Why: "in use"}})
	if !strings.HasPrefix(out.String(), "ages unknown: 2 images first seen just now (hint: an age counts from when the service or a prune first sees an image") {
		t.Errorf("%s", out.String())
	}
}

// A prune without a service says that no history and no journal has it. A dry run removes nothing, and JSON has no notes.
func TestDirectPruneIsNotRecorded(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	file := writeFiles(t, map[string]string{"a.toml": nodetest.Config(t)}) + "/a.toml" // a service may guard the machine of this test
	for _, c := range []struct {
		flags string
		notes bool
	}{{"", true}, {"--dry-run", false}, {"-o json", false}} {
		args := append([]string{"prune", "--images", "--yes", "--run-dir", runDir(t), "--config", file, "--endpoint", srv.Endpoint()}, strings.Fields(c.flags)...)
		code, out, errs := captured(t, args...)
		if code != cli.ExitOK || strings.Contains(errs, "note: not recorded: no service guards this runtime\n") != c.notes {
			t.Errorf("prune %s: exit code %d, stdout %q, stderr %q", c.flags, code, out, errs)
		}
	}
}

// A prune beside a service with another run directory says so before it removes anything.
func TestPruneBesideAService(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	text := nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'")
	cfg := configtest.Parse(t, text)
	layout, err := cgroup.Detect(cgroup.Root(cfg.Node.Sys+"/fs/cgroup"), cgroup.Proc(cfg.Node.Proc))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := node.Locks(layout, cfg.Node.PodsCgroup, cfg.Runtime.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	file := writeFiles(t, map[string]string{"a.toml": text}) + "/a.toml"
	other, ours := runDir(t), runDir(t)
	release, missed, err := rundir.Dir(other).LockNode(locks...)
	if err != nil || len(missed) > 0 {
		t.Fatal(missed, err)
	}
	t.Cleanup(release)
	want := fmt.Sprintf("note: a service guards this node from another run directory, perhaps with another configuration: %s (pid %d) (hint: --run-dir asks it)\n", other, os.Getpid())
	for _, c := range []struct{ flags, want string }{
		{"", want + "note: not recorded: the service was not asked\n"}, {"--dry-run", want}, {"-o json", ""},
	} {
		code, out, errs := captured(t, append([]string{"prune", "--images", "--yes", "--run-dir", ours, "--config", file}, strings.Fields(c.flags)...)...)
		if code != cli.ExitOK || errs != c.want {
			t.Errorf("prune %s: exit code %d, stdout %q, stderr %q, want %q", c.flags, code, out, errs, c.want)
		}
	}
}

// interruptedPruner removes two images until the user interrupts it.
type interruptedPruner struct{ interrupt func() }

func (p interruptedPruner) Prune(ctx context.Context, o api.PruneOptions) ([]reclaim.Report, error) {
	for range 2 {
		o.Progress(reclaim.Item{Kind: reclaim.KindImage})
	}
	p.interrupt()
	return nil, fmt.Errorf("ask service on /run/criguard/criguard.sock: %w", ctx.Err())
}

// A user who interrupts a prune by the service learns what becomes of it.
func TestPruneInterrupted(t *testing.T) {
	for dry, want := range map[bool]string{false: "interrupted: the service has removed 2, and removes no more than what it has begun", true: "interrupted"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := pruneByService(ctx, interruptedPruner{cancel}, api.PruneOptions{Images: true, DryRun: dry}, io.Discard, true)
		if err == nil || err.Error() != want || codeOf(err).Code != cli.ExitFinding {
			t.Errorf("dry run %t: %v, exit code %d", dry, err, codeOf(err).Code)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	dir := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the end of the connection
		cancel()
		<-r.Context().Done()
	})
	root := newRoot()
	root.SetArgs([]string{"prune", "--yes", "--run-dir", dir})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); codeOf(err).Code != cli.ExitFinding || !strings.HasPrefix(err.Error(), "interrupted: the service has removed 0") {
		t.Errorf("before any removal: %v", err)
	}
}
