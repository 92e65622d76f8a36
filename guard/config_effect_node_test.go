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
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// effectFiles makes files below a new directory.
func effectFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// effectStall is a file of stalls, with their totals in microseconds.
const effectStall = "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"

// effectProc is a procfs of a node with so much memory.
func effectProc(t *testing.T, memory int64) string {
	noStall := fmt.Sprintf(effectStall, 0, 0)
	return effectFiles(t, map[string]string{
		"meminfo":                             fmt.Sprintf("MemTotal: %d kB\nMemFree: 1000 kB\nMemAvailable: 2000 kB\nInactive(file): 500 kB\n", memory>>10),
		"loadavg":                             "0.00 0.00 0.00 1/100 1000\n",
		"sys/kernel/pid_max":                  "4194304\n",
		"sys/kernel/random/boot_id":           "3f7e1d2c-0000-0000-0000-000000000000\n",
		"pressure/memory":                     noStall,
		"pressure/io":                         noStall,
		"self/cgroup":                         "1:memory:/\n0::/\n",
		fmt.Sprintf("%d/cgroup", os.Getpid()): "1:memory:/\n0::/\n",
	})
}

// effectSysV1 is a sysfs with cgroup v1, where two cgroups have a limit of memory.
func effectSysV1(t *testing.T) string {
	files := map[string]string{}
	for rel, limit := range map[string]string{"": "9223372036854771712", "kubepods/": "1073741824", "other/": "536870912"} {
		dir := "fs/cgroup/memory/" + rel
		files[dir+"cgroup.procs"] = ""
		files[dir+"memory.usage_in_bytes"] = "1048576\n"
		files[dir+"memory.limit_in_bytes"] = limit + "\n"
		files[dir+"memory.stat"] = "inactive_file 0\ntotal_inactive_file 0\n"
	}
	return effectFiles(t, files)
}

// effectSysV2 is a sysfs with cgroup v2, where a container's cgroup is populated.
func effectSysV2(t *testing.T) string {
	return effectFiles(t, map[string]string{
		"fs/cgroup/cgroup.controllers":             "memory pids\n",
		"fs/cgroup/kubepods/pod1/c1/cgroup.procs":  "",
		"fs/cgroup/kubepods/pod1/c1/cgroup.kill":   "",
		"fs/cgroup/kubepods/pod1/c1/cgroup.events": "populated 1\nfrozen 0\n",
	})
}

// effectNode is a configuration for a node of the test's own.
func effectNode(t *testing.T, lines ...string) string {
	base := fmt.Sprintf("runtime.timeout = '1m'\nnode.proc = %q\nnode.sys = %q\n", effectProc(t, 4<<30), effectSysV1(t))
	base += fmt.Sprintf("node.root_dir = %q\nnode.pod_log_dir = %q\n", t.TempDir(), t.TempDir())
	return base + strings.Join(lines, "\n") + "\n"
}

// differing puts either line below what two configurations share.
func differing(a, b string) func(*testing.T) (string, string) {
	return func(t *testing.T) (string, string) {
		base := effectNode(t, fmt.Sprintf("history.dir = %q", t.TempDir()))
		return base + a, base + b
	}
}

// openEffectNode opens the node of a configuration.
func openEffectNode(t *testing.T, cfg Config) *node {
	t.Helper()
	n, err := openNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// connectedNode opens a node whose runtime is the server.
func connectedNode(t *testing.T, srv *critest.Server) *node {
	t.Helper()
	cfg, err := ParseConfig("test", strings.NewReader(effectNode(t, "eviction.stop_timeout = '1m'", "runtime.endpoint = '"+srv.Endpoint()+"'")))
	if err != nil {
		t.Fatal(err)
	}
	n := openEffectNode(t, cfg)
	if err := n.conn.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// seeMemory shows what memory the node and its pods have.
func seeMemory(t *testing.T, cfg Config) string {
	n := openEffectNode(t, cfg)
	var obs policy.Observations
	n.kernel.Observe(&obs)
	return fmt.Sprintf("%s %s %s", n.kernel.Cgroup(),
		FormatBytes(obs[policy.MeminfoAvailable].Capacity), FormatBytes(obs[policy.AllocatableMemoryAvailable].Capacity))
}

// seeMeasure shows whether a pod's volumes and logs are found.
func seeMeasure(t *testing.T, cfg Config) string {
	n := openEffectNode(t, cfg)
	pods := []Pod{{Candidate: policy.Candidate{ID: "s", Namespace: "d", Name: "a", UID: "u"}}}
	n.meter.measure(t.Context(), pods)
	u, _ := n.meter.usage("s")
	return fmt.Sprintf("volumes=%t logs=%t", u.bytes.Volumes > 0, u.bytes.Logs > 0)
}

// seeStall lets a second pass in which all tasks stood still for 300 ms.
func seeStall(t *testing.T, cfg Config) string {
	n := openEffectNode(t, cfg)
	var obs policy.Observations
	for i, total := range []int{0, 300_000} {
		text := fmt.Sprintf(effectStall, total, total)
		if err := os.WriteFile(filepath.Join(cfg.Node.Proc, "pressure/memory"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n.kernel.observeStalls(&obs, time.Duration(i+1)*time.Second)
	}
	o := obs[policy.MemoryStall]
	return fmt.Sprintf("%s %d%%", o.Status, o.Available*100/policy.StallCapacity)
}

// seeFallback stops a pod whose runtime does not answer, and shows how long the
// cgroup's processes are left alone.
func seeFallback(t *testing.T, cfg Config) (after string) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := cgroup.Detect(cgroup.Root(filepath.Join(cfg.Node.Sys, "fs/cgroup")), cgroup.Proc(cfg.Node.Proc))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		n := &node{conn: NewConn(cfg.Runtime), kernel: &nodeKernel{layout: layout}, cfg: cfg, wake: func(string) {}}
		s := &stopper{node: n, ctx: ctx, stopped: func(Pod) {}}
		start := time.Now()
		job := s.Stop(ctx, StopOrder{Fallback: true, Pod: Pod{
			Cgroup: "/kubepods/pod1", Containers: []PodContainer{{ID: "c1", Cgroup: "/kubepods/pod1/c1", Running: true}},
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
		for name, text := range map[string]string{"cgroup.events": "populated 0\n", "cgroup.kill": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		<-job.Done()
		cancel()
		synctest.Wait()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte("populated 1\n"), 0o600); err != nil {
			t.Fatal(err) // as it was, for the other configuration
		}
	})
	return after
}

// seeRuntime shows which runtime answers.
func seeRuntime(t *testing.T, cfg Config) string {
	c := NewConn(cfg.Runtime)
	defer c.Close()
	if err := c.Connect(t.Context()); err != nil {
		return "none"
	}
	_, v := c.Version()
	return v.RuntimeName
}

// seeKeeper runs a housekeeper once, against a runtime that fill has filled, and
// shows what it removed.
func seeKeeper(fill func(*critest.Server), tidy func(*housekeeper, context.Context), method string) func(*testing.T, Config) string {
	return func(t *testing.T, cfg Config) string {
		srv := critest.New(t, critest.Containerd2)
		fill(srv)
		cfg.Runtime.Endpoint = srv.Endpoint()
		n := openEffectNode(t, cfg)
		if err := n.conn.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.refresh(t.Context())
		h := newHousekeeper(n, cfg, slog.New(slog.DiscardHandler), func(ReclaimView) {})
		tidy(h, t.Context())
		return fmt.Sprintf("%d removed", len(srv.Calls(method)))
	}
}

// addDeadContainers are two pods, with three and with one dead container of a name.
func addDeadContainers(s *critest.Server) {
	old := time.Now().Add(-10 * time.Minute)
	for _, attempts := range []uint32{3, 1} {
		pod := critest.PodSpec{CreatedAt: old}
		for i := range attempts {
			pod.Containers = append(pod.Containers, critest.ContainerSpec{Name: "main", Attempt: i, State: cri.Exited})
		}
		s.AddPod(pod)
	}
}

func addUnusedImage(s *critest.Server) {
	s.AddImage(critest.ImageSpec{Tags: []string{"registry.example.com/app:1"}, Size: 1})
}

// effectOnImages is the effect of a key on an image that nobody uses: nothing but what a
// and b say holds it back, and the disk is above its watermark.
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

func seeImages(t *testing.T, cfg Config) string {
	return seeKeeper(addUnusedImage, (*housekeeper).tidyImages, "RemoveImage")(t, cfg)
}

// seeLow shows down to which share of the disk images go, in millionths of a percent.
func seeLow(t *testing.T, cfg Config) string {
	n := openEffectNode(t, cfg)
	paths := n.kernel.disks.getPaths()
	paths.image = paths.node
	n.kernel.disks.setPaths(paths)
	h := newHousekeeper(n, cfg, slog.New(slog.DiscardHandler), func(ReclaimView) {})
	room, err := h.watermark(cfg.Images)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	disk, err := cgroup.StatfsNearest(paths.image)
	if err != nil {
		t.Fatal(err)
	}
	low := disk.Total - room.Bytes - room.LackBytes
	return fmt.Sprint((low*100_000_000 + disk.Total/2) / disk.Total)
}

// effectService is a service that is ready to run.
func effectService(t *testing.T, cfg Config) *Service {
	t.Helper()
	dir, err := os.MkdirTemp("", "criguard") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if cfg.History.Dir == string(DefaultRunDir) {
		cfg.History.Dir = dir // that of the machine is not the test's
	}
	s := &Service{
		opt: ServiceOptions{Config: cfg, RunDir: RunDir(dir), Notifier: &systemd.Notifier{}},
		log: slog.New(slog.DiscardHandler), started: time.Now(), metrics: NewMetrics("test"), endStops: func() {},
		calls: make(chan func()), turn: make(chan struct{}, 1), wakes: make(chan string, 1), kick: make(chan struct{}, 1),
	}
	s.journal = NewJournal(s.log)
	if err := s.assemble(t.Context(), t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.node.Close)
	return s
}

// seeHistory shows in which of the directories beside each other the history is,
// and how many of three passes it keeps.
func seeHistory(t *testing.T, cfg Config) string {
	s := effectService(t, cfg)
	for id := range uint64(3) {
		s.history.Add(Pass{ID: id + 1})
	}
	kept := len(s.history.Last(0))
	if err := errors.Join(s.history.Save(), s.history.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(cfg.History.Dir), "*", historyName))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	in := filepath.Base(filepath.Dir(files[0]))
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d in %s", kept, in)
}

// servedEffect is a service that answers, until its end is called for.
func servedEffect(t *testing.T, cfg Config) (s *Service, client *Client, end func()) {
	t.Helper()
	s = effectService(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	client = NewClient(s.opt.RunDir)
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := client.Status(t.Context()); err == nil {
			return s, client, end
		} else if time.Now().After(deadline) {
			end()
			t.Fatal(err)
		}
	}
}

// metricsAt shows whether a service serves its metrics at an address.
func metricsAt(addr string) func(*testing.T, Config) string {
	return func(t *testing.T, cfg Config) string {
		_, _, end := servedEffect(t, cfg)
		defer end()
		// The listener is opened beside the loop.
		for deadline := time.Now().Add(time.Minute); ; {
			resp, err := http.Get("http://" + addr + "/metrics")
			if err != nil && (cfg.Metrics.Listen == "" || time.Now().After(deadline)) {
				return "closed"
			}
			if err != nil {
				continue
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || !strings.Contains(string(text), "criguard_passes_total") {
				t.Fatalf("%v: %s", err, text)
			}
			return "served"
		}
	}
}

// effectPort is a port that nobody listens at, of a loopback address that is this process's
// own: nobody else takes it meanwhile.
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

// nodeEffects has an entry for each key that acts where the node is.
func nodeEffects() map[string]keyEffect {
	tidyContainers := seeKeeper(addDeadContainers, (*housekeeper).tidyContainers, "RemoveContainer")
	const free = "min_age = '0s', unused_grace = '0s', hold_after_runtime_restart = '0s'"
	metrics := effectPort()
	return map[string]keyEffect{
		"runtime.endpoint": {
			where: "Conn.Connect", see: seeRuntime, sawA: "containerd", sawB: "cri-o",
			in: func(t *testing.T) (a, b string) {
				const line = "runtime.endpoint = %q"
				return fmt.Sprintf(line, critest.New(t, critest.Containerd2).Endpoint()), fmt.Sprintf(line, critest.New(t, critest.CRIO).Endpoint())
			},
		},
		"runtime.timeout": {
			where: "Conn.Connect", see: seeRuntime, sawA: "none", sawB: "containerd",
			in: func(t *testing.T) (a, b string) {
				srv := critest.New(t, critest.Containerd2)
				t.Cleanup(srv.Inject(critest.Fault{Method: "Version", Delay: time.Second}))
				base := fmt.Sprintf("runtime.endpoint = %q\n", srv.Endpoint())
				return base + "runtime.timeout = '10ms'", base + "runtime.timeout = '1m'"
			},
		},

		"node.root_dir": {
			where: "diskMeter.measure", see: seeMeasure, sawA: "volumes=false logs=false", sawB: "volumes=true logs=false",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = %q\npod_log_dir = %q\nroot_dir = ", effectProc(t, 1<<30), effectSysV1(t), t.TempDir())
				return fmt.Sprintf("%s%q", base, t.TempDir()),
					fmt.Sprintf("%s%q", base, effectFiles(t, map[string]string{"pods/u/volumes/kubernetes.io~empty-dir/v/file": strings.Repeat("x", 10_000)}))
			},
		},
		"node.pod_log_dir": {
			where: "diskMeter.measure", see: seeMeasure, sawA: "volumes=false logs=false", sawB: "volumes=false logs=true",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = %q\nroot_dir = %q\npod_log_dir = ", effectProc(t, 1<<30), effectSysV1(t), t.TempDir())
				return fmt.Sprintf("%s%q", base, t.TempDir()),
					fmt.Sprintf("%s%q", base, effectFiles(t, map[string]string{"d_a_u/main/0.log": strings.Repeat("x", 10_000)}))
			},
		},
		"node.proc": {
			where: "openNode", see: seeMemory, sawA: "v1 2Gi 1Gi", sawB: "v1 4Gi 1Gi",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nsys = %q\nproc = ", effectSysV1(t))
				return fmt.Sprintf("%s%q", base, effectProc(t, 2<<30)), fmt.Sprintf("%s%q", base, effectProc(t, 4<<30))
			},
		},
		"node.sys": {
			where: "openNode", see: seeMemory, sawA: "v1 2Gi 1Gi", sawB: "v2 2Gi 0",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = ", effectProc(t, 2<<30))
				return fmt.Sprintf("%s%q", base, effectSysV1(t)), fmt.Sprintf("%s%q", base, effectSysV2(t))
			},
		},
		"node.pods_cgroup": {
			where: "openNode", see: seeMemory, sawA: "v1 4Gi 1Gi", sawB: "v1 4Gi 512Mi",
			in: differing("", "node.pods_cgroup = '/other'"),
		},

		"eviction.stop_timeout": {
			where: "stopper.Stop", see: seeFallback, sawA: "2s", sawB: "7s",
			in: func(t *testing.T) (a, b string) {
				base := fmt.Sprintf("[node]\nproc = %q\nsys = %q\n[runtime]\nendpoint = '/none'\n", effectProc(t, 2<<30), effectSysV2(t))
				return base, base + "[eviction]\nstop_timeout = '7s'"
			},
		},
		"eviction.stall_window": {
			where: "nodeKernel.observeStalls", see: seeStall, sawA: "absent 0%", sawB: "ok 70%",
			in: differing("", "eviction.stall_window = '500ms'"),
		},

		"containers.gc":                {where: "housekeeper.tidyContainers", see: tidyContainers, sawA: "2 removed", sawB: "0 removed", in: differing("", "containers.gc = false")},
		"containers.min_age":           {where: "housekeeper.plan", see: tidyContainers, sawA: "2 removed", sawB: "0 removed", in: differing("", "containers.min_age = '1h'")},
		"containers.max_per_container": {where: "housekeeper.plan", see: tidyContainers, sawA: "2 removed", sawB: "1 removed", in: differing("", "containers.max_per_container = 2")},
		"containers.max":               {where: "housekeeper.plan", see: tidyContainers, sawA: "2 removed", sawB: "3 removed", in: differing("", "containers.max = 1")},

		"images.prune":                      effectOnImages("housekeeper.tidyImages", "prune", "'auto'", "'never'"),
		"images.high":                       effectOnImages("housekeeper.watermark", "high", "'0.000001%'", "'100%'"),
		"images.min_age":                    effectOnImages("reclaim.JudgeImages", "min_age", "'0s'", "'1h'"),
		"images.unused_grace":               effectOnImages("reclaim.JudgeImages", "unused_grace", "'0s'", "'1h'"),
		"images.keep":                       effectOnImages("reclaim.JudgeImages", "keep", "[]", "['registry.example.com/*']"),
		"images.hold_after_runtime_restart": effectOnImages("reclaim.Plan", "hold_after_runtime_restart", "'0s'", "'876000h'"),
		"images.low": {
			where: "housekeeper.watermark", see: seeLow, sawA: "0", sawB: "90",
			in: differing("images = {high = '0.0001%', low = '0%'}", "images = {high = '0.0001%', low = '0.00009%'}"),
		},
		"images.max_age": {
			where: "reclaim.JudgeImages", see: seeImages, sawA: "0 removed", sawB: "1 removed",
			in: differing("images = {high = '100%', "+free+"}", "images = {high = '100%', max_age = '1ns', "+free+"}"),
		},
		"images.airgap_dirs": {
			where: "reclaim.AirGap", see: seeImages, sawA: "1 removed", sawB: "0 removed",
			in: func(t *testing.T) (a, b string) {
				base := effectNode(t, fmt.Sprintf("history.dir = %q", t.TempDir()))
				dir := effectFiles(t, map[string]string{"images.txt": "registry.example.com/app:1\n"})
				const line = "images = {high = '0.000001%%', low = '0%%', airgap_dirs = [%q], %s}"
				return base + fmt.Sprintf(line, t.TempDir(), free), base + fmt.Sprintf(line, dir, free)
			},
		},

		"history.passes": {
			where: "Service.assemble", see: seeHistory, sawA: "3 in history", sawB: "2 in history",
			in: func(t *testing.T) (a, b string) {
				base := effectNode(t, fmt.Sprintf("history.dir = %q", filepath.Join(t.TempDir(), "history")))
				return base, base + "history.passes = 2"
			},
		},
		"history.dir": {
			where: "Service.assemble", see: seeHistory, sawA: "3 in a", sawB: "3 in b",
			in: func(t *testing.T) (a, b string) {
				base, dir := effectNode(t), t.TempDir()
				return base + fmt.Sprintf("history.dir = %q", filepath.Join(dir, "a")), base + fmt.Sprintf("history.dir = %q", filepath.Join(dir, "b"))
			},
		},
		"metrics.textfile": {
			where: "Service.writeMetrics", see: seeTextfile, sawA: "none", sawB: "criguard.prom",
			in: func(t *testing.T) (a, b string) {
				base := effectNode(t, "runtime.endpoint = '/none'", fmt.Sprintf("history.dir = %q", t.TempDir()))
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
func seeTextfile(t *testing.T, cfg Config) string {
	s := effectService(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if cfg.Metrics.Textfile == "" {
		return "none"
	}
	for deadline := time.Now().Add(time.Minute); ; {
		b, err := os.ReadFile(cfg.Metrics.Textfile)
		if err == nil && strings.Contains(string(b), "\ncriguard_passes_total") && !strings.Contains(string(b), "\ngo_") {
			return filepath.Base(cfg.Metrics.Textfile)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s", err, b)
		}
	}
}

// effectOfHook is the effect of a key of a hook, on the event that a condition has
// begun.
func effectOfHook(key, a, b, sawA, sawB string) keyEffect {
	text := func(value string) string {
		keys := map[string]string{"on": `"condition"`, "command": `["/bin/sh", "-c", "sleep 1"]`, "timeout": "'1m'"}
		keys[key] = value
		return fmt.Sprintf("[[hook]]\non = %s\ncommand = %s\ntimeout = %s\n", keys["on"], keys["command"], keys["timeout"])
	}
	return keyEffect{where: "hooks.configure", a: text(a), b: text(b), see: seeHook, sawA: sawA, sawB: sawB}
}

// seeHook shows what became of the hook of a pass that saw a condition begin.
func seeHook(t *testing.T, cfg Config) string {
	h := newHooks(slog.New(slog.DiscardHandler), NewMetrics("test"))
	h.start(t.Context(), cfg.Hooks)
	h.post(&Pass{ID: 1, Changed: true, Conditions: policy.ConditionsOf(policy.MemoryPressure)}, ModeEnforce)
	h.configure(nil) // what is queued is run still
	h.wait()
	families, err := h.metrics.own.Gather()
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
				return strings.Replace(result, hookOK, "ran", 1) + " for " + m.GetLabel()[0].GetValue()
			}
		}
	}
	return "none"
}
