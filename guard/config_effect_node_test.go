package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/journal"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/stop"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// differing returns two configurations that differ only in a and b.
func differing(a, b string) func(*testing.T) (string, string) {
	return func(t *testing.T) (string, string) {
		base := nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()))
		return base + a, base + b
	}
}

// openEffectNode opens the node of a configuration.
func openEffectNode(t *testing.T, cfg config.Config) *host {
	t.Helper()
	n, err := openHost(cfg, machine.Real())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// connectedNode opens a node that is connected to the runtime srv.
func connectedNode(t *testing.T, srv *critest.Server, lines ...string) *host {
	t.Helper()
	n := openEffectNode(t, configtest.Parse(t, nodetest.Config(t, append(lines, "eviction.stop_timeout = '1m'", "runtime.endpoint = '"+srv.Endpoint()+"'")...)))
	if err := n.conn.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// seeMemory shows how much memory the node and its pods have.
func seeMemory(t *testing.T, cfg config.Config) string {
	n := openEffectNode(t, cfg)
	var obs policy.Observations
	n.kernel.Observe(&obs)
	return fmt.Sprintf("%s %s %s", n.kernel.Cgroup(),
		api.FormatBytes(obs[policy.MeminfoAvailable].Capacity), api.FormatBytes(obs[policy.AllocatableMemoryAvailable].Capacity))
}

// seeMeasure shows whether a pod's volumes and logs are found.
func seeMeasure(t *testing.T, cfg config.Config) string {
	n := openEffectNode(t, cfg)
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "s", Namespace: "d", Name: "a", UID: "u"}}}
	n.meter.Measure(t.Context(), pods)
	u, _ := n.meter.Usage("s")
	return fmt.Sprintf("volumes=%t logs=%t", u.Bytes.Volumes.Value > 0, u.Bytes.Logs.Value > 0)
}

// seeStall shows the signal after a second in which all tasks were stalled for 300 ms.
func seeStall(t *testing.T, cfg config.Config) string {
	n := openEffectNode(t, cfg)
	now := time.Second
	k, err := node.Open(node.Options{Layout: n.layout, StallWindow: cfg.Eviction.StallWindow, Now: func() time.Duration { return now }, Disks: n.disks})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var obs policy.Observations
	for _, total := range []int{0, 300_000} {
		nodetest.Write(t, cfg.Node.Proc, map[string]string{"pressure/memory": nodetest.Stall(total)})
		k.Observe(&obs)
		now += time.Second
	}
	o := obs[policy.MemoryStall]
	return fmt.Sprintf("%s %d%%", o.Status, o.Available*100/policy.StallCapacity)
}

// seeFallback stops a pod whose runtime does not answer, and shows how long the cgroup's processes are left
// alone.
func seeFallback(t *testing.T, cfg config.Config) (after string) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := cgroup.Detect(cgroup.Root(filepath.Join(cfg.Node.Sys, "fs/cgroup")), cgroup.Proc(cfg.Node.Proc))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		n := &host{conn: cri.NewConnector(cri.ConnectorOptions{Endpoint: cfg.Runtime.Endpoint}), cgroups: layout, layout: layout, wake: func(string) {}}
		n.cfg.Store(&cfg)
		s := stop.New(ctx, n.stopOptions(func(inventory.Pod) {}))
		start := time.Now()
		job := s.Stop(ctx, eviction.StopOrder{Fallback: true, Pod: inventory.Pod{
			Cgroup: "/kubepods/pod1", Containers: []inventory.Container{{ID: "c1", Cgroup: "/kubepods/pod1/c1", Running: true}},
		}})
		dir := filepath.Join(cfg.Node.Sys, "fs/cgroup/kubepods/pod1/c1")
		for killed := false; !killed && time.Since(start) < time.Minute; {
			time.Sleep(time.Millisecond)
			b, err := os.ReadFile(filepath.Join(dir, "cgroup.kill"))
			if err != nil {
				t.Fatal(err)
			}
			killed = string(b) == "1"
		}
		after = time.Since(start).Round(time.Second).String()
		nodetest.Write(t, dir, map[string]string{"cgroup.events": "populated 0\n", "cgroup.kill": ""})
		<-job.Done()
		cancel()
		synctest.Wait()
		nodetest.Write(t, dir, map[string]string{"cgroup.events": "populated 1\n"}) // for the other configuration
	})
	return after
}

// seeRuntime shows which runtime answers.
func seeRuntime(t *testing.T, cfg config.Config) string {
	c := cri.NewConnector((&host{}).connectorOptions(cfg.Runtime, machine.Real()))
	defer c.Close()
	if err := c.Connect(t.Context()); err != nil {
		return "none"
	}
	_, v := c.Version()
	return v.RuntimeName
}

// gcOn configures garbage collection on a node whose runtime is srv.
func gcOn(t *testing.T, cfg config.Config, srv *critest.Server) gc.Options {
	t.Helper()
	cfg.Runtime.Endpoint = srv.Endpoint()
	n := openEffectNode(t, cfg)
	if _, err := n.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.readDiskPaths(t.Context())
	return n.gcOptions(slog.New(slog.DiscardHandler), func(api.ReclaimView, *api.Peer) {})
}

// seeGC collects once from a runtime that fill has filled, and shows how much was removed.
func seeGC(fill func(*critest.Server), collect func(*gc.Manager, context.Context), method string) func(*testing.T, config.Config) string {
	return func(t *testing.T, cfg config.Config) string {
		srv := critest.New(t, critest.Containerd2)
		fill(srv)
		collect(gc.New(gcOn(t, cfg, srv)), t.Context())
		return fmt.Sprintf("%d removed", len(srv.Calls(method)))
	}
}

// effectOnImages is the effect of a key on an unused image. Only a and b can hold the image back, and the
// disk is above its watermark.
func effectOnImages(where, key, a, b string) keyEffect {
	text := "[images]\n"
	for _, line := range []string{
		"high = '0.000001%'", "low = '0%'", "min_age = '0s'", "unused_grace = '0s'", "hold_after_runtime_restart = '0s'",
	} {
		if !strings.HasPrefix(line, key+" ") {
			text += line + "\n"
		}
	}
	text += key + " = "
	return keyEffect{where: where, in: differing(text+a, text+b), see: seeImages, sawA: "1 removed", sawB: "0 removed"}
}

func seeImages(t *testing.T, cfg config.Config) string {
	return seeGC(nodetest.AddUnusedImage, (*gc.Manager).CollectImages, "RemoveImage")(t, cfg)
}

// seeLow shows how many images are removed from a disk that is 90% full, if each takes 10%.
func seeLow(t *testing.T, cfg config.Config) string {
	srv := critest.New(t, critest.Containerd2)
	for i := range 5 {
		srv.AddImage(critest.ImageSpec{Tags: []string{fmt.Sprintf("registry.example.com/app:%d", i)}, Size: 1})
	}
	opt := gcOn(t, cfg, srv)
	opt.Disks = disk.NewWatcher("", func(string) (cgroup.Space, error) {
		return cgroup.Space{Total: 10, Available: 1 + int64(len(srv.Calls("RemoveImage")))}, nil
	})
	gc.New(opt).CollectImages(t.Context())
	return fmt.Sprintf("%d removed", len(srv.Calls("RemoveImage")))
}

// effectService returns a service that is ready to run.
func effectService(t *testing.T, cfg config.Config) *Service {
	t.Helper()
	dir := rundir.Dir(shortDir(t))
	cfg.Dir = dir
	state := gc.StateDir(&cfg)
	if _, err := os.Stat(state); err == nil {
		ranBefore(t, rundir.Dir(state), cfg) // the fake node meets the default thresholds
	}
	return newService(t, cfg, dir)
}

// shortDir returns a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "criguard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newService(t *testing.T, cfg config.Config, dir rundir.Dir) *Service {
	t.Helper()
	s := &Service{
		opt: ServiceOptions{Config: cfg, Dir: dir, Machine: machine.Real(), Notifier: &systemd.Notifier{}},
		log: slog.New(slog.DiscardHandler), started: time.Now(), metrics: metrics.New("test", cgroup.BootTime), endStops: func() {},
		calls: make(chan func()), reloads: make(chan reloadRequest), turn: make(chan struct{}, 1), wakes: make(chan string, 1), kick: make(chan struct{}, 1),
	}
	s.journal = journal.New(s.log)
	if err := s.assemble(t.Context(), t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.host.Close)
	return s
}

// seeHistory shows in which of two neighboring directories the history is, and how many of three passes it
// keeps.
func seeHistory(t *testing.T, cfg config.Config) string {
	s := effectService(t, cfg)
	for id := range uint64(3) {
		s.history.Add(api.Pass{ID: id + 1})
	}
	kept := len(passesOf(t, s))
	if err := errors.Join(s.history.Save(), s.history.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(cfg.History.Dir), "*", history.FileName))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	in := filepath.Base(filepath.Dir(files[0]))
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d in %s", kept, in)
}

// run runs a service until end is called.
func run(t *testing.T, s *Service) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// servedEffect runs a service that answers, until end is called or the test ends.
func servedEffect(t *testing.T, cfg config.Config) (s *Service, client *control.Client, end func()) {
	t.Helper()
	s = effectService(t, cfg)
	end = run(t, s)
	t.Cleanup(end)
	client = control.NewClient(s.opt.Dir)
	nodetest.Await(t, "the service", func() bool { _, err := client.Status(t.Context()); return err == nil })
	return s, client, end
}

// metricsAt shows whether a service serves its metrics at an address.
func metricsAt(addr string) func(*testing.T, config.Config) string {
	return func(t *testing.T, cfg config.Config) string {
		_, _, end := servedEffect(t, cfg)
		defer end()
		seen := "closed"
		nodetest.Await(t, "an answer", func() bool { // the listener is opened concurrently with the loop
			resp, err := http.Get("http://" + addr + "/metrics")
			if err != nil {
				return cfg.Metrics.Listen == ""
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || !strings.Contains(string(text), "criguard_passes_total") {
				t.Fatalf("%v: %s", err, text)
			}
			seen = "served"
			return true
		})
		return seen
	}
}

// effectPort returns the address of an unused port.
func effectPort() string {
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return host + ":9480"
	}
	defer l.Close()
	return l.Addr().String()
}

// nodeEffects has an entry for each key that acts on the node.
func nodeEffects() map[string]keyEffect {
	containers := seeGC(nodetest.AddDeadContainers, (*gc.Manager).CollectContainers, "RemoveContainer")
	const free = "min_age = '0s', unused_grace = '0s', hold_after_runtime_restart = '0s'"
	metrics := effectPort()
	return map[string]keyEffect{
		"runtime.endpoint": {
			where: "cri.Connector.Connect", see: seeRuntime, sawA: "containerd", sawB: "cri-o",
			in: func(t *testing.T) (a, b string) {
				const line = "runtime.endpoint = %q"
				return fmt.Sprintf(line, critest.New(t, critest.Containerd2).Endpoint()), fmt.Sprintf(line, critest.New(t, critest.CRIO).Endpoint())
			},
		},
		"runtime.timeout": {
			where: "cri.Connector.Connect", see: seeRuntime, sawA: "none", sawB: "containerd",
			in: func(t *testing.T) (a, b string) {
				srv := critest.New(t, critest.Containerd2)
				t.Cleanup(srv.Inject(critest.Fault{Method: "Version", Delay: 5 * time.Second}))
				base := fmt.Sprintf("runtime.endpoint = %q\n", srv.Endpoint())
				return base + "runtime.timeout = '10ms'", base + "runtime.timeout = '1m'"
			},
		},

		"node.root_dir": {
			where: "disk.Meter.Measure", see: seeMeasure, sawA: "volumes=false logs=false", sawB: "volumes=true logs=false",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = %q\npod_log_dir = %q\nroot_dir = ", nodetest.Proc(t, 1<<30), nodetest.SysV1(t), t.TempDir())
				return fmt.Sprintf("%s%q", base, t.TempDir()),
					fmt.Sprintf("%s%q", base, nodetest.Files(t, map[string]string{"pods/u/volumes/kubernetes.io~empty-dir/v/file": strings.Repeat("x", 10_000)}))
			},
		},
		"node.pod_log_dir": {
			where: "disk.Meter.Measure", see: seeMeasure, sawA: "volumes=false logs=false", sawB: "volumes=false logs=true",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = %q\nroot_dir = %q\npod_log_dir = ", nodetest.Proc(t, 1<<30), nodetest.SysV1(t), t.TempDir())
				return fmt.Sprintf("%s%q", base, t.TempDir()),
					fmt.Sprintf("%s%q", base, nodetest.Files(t, map[string]string{"d_a_u/main/0.log": strings.Repeat("x", 10_000)}))
			},
		},
		"node.proc": {
			where: "openHost", see: seeMemory, sawA: "v1 2Gi 1Gi", sawB: "v1 4Gi 1Gi",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nsys = %q\nproc = ", nodetest.SysV1(t))
				return fmt.Sprintf("%s%q", base, nodetest.Proc(t, 2<<30)), fmt.Sprintf("%s%q", base, nodetest.Proc(t, 4<<30))
			},
		},
		"node.sys": {
			where: "openHost", see: seeMemory, sawA: "v1 2Gi 1Gi", sawB: "v2 2Gi 0",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = ", nodetest.Proc(t, 2<<30))
				return fmt.Sprintf("%s%q", base, nodetest.SysV1(t)), fmt.Sprintf("%s%q", base, nodetest.SysV2(t))
			},
		},
		"node.pods_cgroup": {
			where: "openHost", see: seeMemory, sawA: "v1 4Gi 1Gi", sawB: "v1 4Gi 512Mi",
			in: differing("", "node.pods_cgroup = '/other'"),
		},

		"eviction.stop_timeout": {
			where: "stop.Stopper.Stop", see: seeFallback, sawA: "2s", sawB: "7s",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = %q\n[runtime]\nendpoint = '/none'\n", nodetest.Proc(t, 2<<30), nodetest.SysV2(t))
				return base, base + "[eviction]\nstop_timeout = '7s'"
			},
		},
		"eviction.stall_window": {
			where: "node.Node.observeStalls", see: seeStall, sawA: "absent 0%", sawB: "ok 70%",
			in: differing("", "eviction.stall_window = '500ms'"),
		},

		"containers.gc":                {where: "gc.Manager.CollectContainers", see: containers, sawA: "2 removed", sawB: "0 removed", in: differing("", "containers.gc = false")},
		"containers.min_age":           {where: "gc.Manager.plan", see: containers, sawA: "2 removed", sawB: "0 removed", in: differing("", "containers.min_age = '1h'")},
		"containers.max_per_container": {where: "gc.Manager.plan", see: containers, sawA: "2 removed", sawB: "1 removed", in: differing("", "containers.max_per_container = 2")},
		"containers.max":               {where: "gc.Manager.plan", see: containers, sawA: "2 removed", sawB: "3 removed", in: differing("", "containers.max = 1")},

		"images.prune":                      effectOnImages("gc.Manager.CollectImages", "prune", "'auto'", "'never'"),
		"images.high":                       effectOnImages("gc.Manager.watermark", "high", "'0.000001%'", "'100%'"),
		"images.min_age":                    effectOnImages("reclaim.JudgeImages", "min_age", "'0s'", "'1h'"),
		"images.unused_grace":               effectOnImages("reclaim.JudgeImages", "unused_grace", "'0s'", "'1h'"),
		"images.keep":                       effectOnImages("reclaim.JudgeImages", "keep", "[]", "['registry.example.com/*']"),
		"images.hold_after_runtime_restart": effectOnImages("reclaim.Plan", "hold_after_runtime_restart", "'0s'", "'876000h'"),
		"images.low": {
			where: "gc.Manager.watermark", see: seeLow, sawA: "4 removed", sawB: "1 removed",
			in: differing("images = {low = '50%', "+free+"}", "images = {low = '80%', "+free+"}"),
		},
		"images.max_age": {
			where: "reclaim.JudgeImages", see: seeImages, sawA: "0 removed", sawB: "1 removed",
			in: differing("images = {high = '100%', "+free+"}", "images = {high = '100%', max_age = '1ns', "+free+"}"),
		},
		"images.airgap_dirs": {
			where: "reclaim.AirGap", see: seeImages, sawA: "1 removed", sawB: "0 removed",
			in: func(t *testing.T) (a, b string) {
				base := nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()))
				dir := nodetest.Files(t, map[string]string{"images.txt": "registry.example.com/app:1\n"})
				const line = "images = {high = '0.000001%%', low = '0%%', airgap_dirs = [%q], %s}"
				return base + fmt.Sprintf(line, t.TempDir(), free), base + fmt.Sprintf(line, dir, free)
			},
		},

		"history.passes": {
			where: "Service.assemble", see: seeHistory, sawA: "3 in history", sawB: "2 in history",
			in: func(t *testing.T) (a, b string) {
				base := nodetest.Config(t, fmt.Sprintf("history.dir = %q", filepath.Join(t.TempDir(), "history")))
				return base, base + "history.passes = 2"
			},
		},
		"history.dir": {
			where: "Service.assemble", see: seeHistory, sawA: "3 in a", sawB: "3 in b",
			in: func(t *testing.T) (a, b string) {
				base, dir := nodetest.Config(t), t.TempDir()
				return base + fmt.Sprintf("history.dir = %q", filepath.Join(dir, "a")), base + fmt.Sprintf("history.dir = %q", filepath.Join(dir, "b"))
			},
		},
		"metrics.textfile": {
			where: "Service.writeMetrics", see: seeTextfile, sawA: "none", sawB: "criguard.prom",
			in: func(t *testing.T) (a, b string) {
				base := nodetest.Config(t, "runtime.endpoint = '/none'", fmt.Sprintf("history.dir = %q", t.TempDir()))
				return base, base + fmt.Sprintf("metrics.textfile = %q", filepath.Join(t.TempDir(), "criguard.prom"))
			},
		},
		"hook[].on":      effectOfHook("on", `"condition"`, `["stop", "alarm"]`, "ran for condition", "none"),
		"hook[].command": effectOfHook("command", `["/bin/sh", "-c", "true"]`, `["/bin/sh", "-c", "exit 1"]`, "ran for condition", "failed for condition"),
		"hook[].timeout": effectOfHook("timeout", "'1m'", "'100ms'", "ran for condition", "timeout for condition"),
		"metrics.listen": {
			where: "Service.serve", see: metricsAt(metrics), sawA: "closed", sawB: "served",
			in: differing("runtime.endpoint = '/none'\n", fmt.Sprintf("runtime.endpoint = '/none'\nmetrics.listen = %q", metrics)),
		},
	}
}

// seeTextfile shows the file that a service writes its metrics to.
func seeTextfile(t *testing.T, cfg config.Config) string {
	_, _, end := servedEffect(t, cfg)
	defer end()
	if cfg.Metrics.Textfile == "" {
		return "none"
	}
	nodetest.Await(t, "the metrics", func() bool {
		b, err := os.ReadFile(cfg.Metrics.Textfile)
		return err == nil && strings.Contains(string(b), "\ncriguard_passes_total") && !strings.Contains(string(b), "\ngo_")
	})
	return filepath.Base(cfg.Metrics.Textfile)
}

// effectOfHook is the effect of a hook's key on the event that a condition has begun.
func effectOfHook(key, a, b, sawA, sawB string) keyEffect {
	text := func(value string) string {
		keys := map[string]string{"on": `"condition"`, "command": `["/bin/sh", "-c", "sleep 5"]`, "timeout": "'1m'"}
		keys[key] = value
		return fmt.Sprintf("[[hook]]\non = %s\ncommand = %s\ntimeout = %s\n", keys["on"], keys["command"], keys["timeout"])
	}
	return keyEffect{where: "hook.Dispatcher.Configure", a: text(a), b: text(b), see: seeHook, sawA: sawA, sawB: sawB}
}

// seeHook shows the result of a hook that runs for a pass in which a condition began.
func seeHook(t *testing.T, cfg config.Config) string {
	m := metrics.New("test", cgroup.BootTime)
	h := hook.NewDispatcher(slog.New(slog.DiscardHandler), m.Hook)
	h.Start(t.Context(), cfg.Hooks)
	h.Post(&api.Pass{ID: 1, Changed: true, Conditions: policy.ConditionsOf(policy.MemoryPressure)}, config.ModeEnforce)
	h.Configure(nil) // queued events still run
	h.Wait()
	families, err := m.Own().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "criguard_hook_events_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() > 0 {
				result := m.GetLabel()[1].GetValue()
				return strings.Replace(result, hook.ResultOK, "ran", 1) + " for " + m.GetLabel()[0].GetValue()
			}
		}
	}
	return "none"
}
