package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// The defaults, spelt out: changing a default changes every node.
func TestDefaultConfig(t *testing.T) {
	size, percent := policy.Bytes, policy.Percent
	hard := func(s policy.Signal, v policy.Quantity) policy.Threshold {
		return policy.Threshold{Signal: s, Value: v}
	}
	want := Config{
		Mode: ModeEnforce, ProtectStatic: true, ProtectKubeSystem: true,
		Runtime: Runtime{Timeout: 2 * time.Second},
		Eviction: Eviction{
			Interval: 10 * time.Second, MaxPodGracePeriod: 30 * time.Second, PressureTransitionPeriod: 5 * time.Minute,
			SoftForgive: 5 * time.Second, StopTimeout: 2 * time.Second, DirectKill: DirectKillHardMemory,
			StallWindow: 2 * time.Second, StallFloor: percent(20),
			Thresholds: []policy.Threshold{
				hard(policy.MemoryAvailable, size(100<<20)), hard(policy.PIDAvailable, percent(5)),
				hard(policy.NodeFSAvailable, percent(10)), hard(policy.NodeFSInodesFree, percent(5)),
				hard(policy.ImageFSAvailable, percent(15)), hard(policy.ImageFSInodesFree, percent(5)),
			},
		},
		Rank: Rank{
			Memory: []policy.Key{policy.KeyCulprit, policy.KeyOverRequest, policy.KeyPriority, policy.KeyUsage},
			Disk:   []policy.Key{policy.KeyOverRequest, policy.KeyPriority, policy.KeyUsage},
			Inodes: []policy.Key{policy.KeyPriority, policy.KeyUsage},
			PID:    []policy.Key{policy.KeyCulprit, policy.KeyPriority, policy.KeyUsage},
		},
		Budget: Budget{policy.BudgetConfig{
			Hard: policy.Bucket{Burst: 3, Every: 30 * time.Second}, Soft: policy.Bucket{Burst: 2, Every: 5 * time.Minute},
			PerHour: 20, Breaker: 3,
		}},
		Backoff:    Backoff{policy.BackoffConfig{First: 10 * time.Second, Max: 5 * time.Minute, Reset: 10 * time.Minute}},
		Admission:  Admission{AdmissionOff},
		Containers: Containers{GC: true, MinAge: time.Minute, MaxPerContainer: 1, Max: -1},
		Images: Images{
			Prune: PruneAuto, High: percent(85), Low: percent(80), MinAge: 2 * time.Minute, UnusedGrace: 24 * time.Hour,
			AirgapDirs: []string{
				"/var/lib/rancher/k3s/agent/images", "/var/lib/rancher/rke2/agent/images",
				"/var/lib/k0s/images", "/var/snap/microk8s/common/sideload",
			},
			HoldAfterRuntimeRestart: 5 * time.Minute,
		},
		History: History{Passes: 1000},
	}
	if got := Default(); !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
	if got := goodConfig(t, ""); !reflect.DeepEqual(withoutFile(got), want) {
		t.Errorf("an empty file is\n%+v", got)
	}
}

func withoutFile(c Config) Config {
	c.Files, c.origins = nil, schema.Origins{}
	return c
}

func TestParseConfigEveryKey(t *testing.T) {
	text, err := os.ReadFile("testdata/config/every.toml")
	if err != nil {
		t.Fatal(err)
	}
	rule := func(namespace, name string, labels map[string]string) policy.Rule {
		return policy.Rule{Namespace: namespace, Name: name, Labels: labels}
	}
	want := Config{
		Mode:    ModeObserve,
		Runtime: Runtime{Endpoint: "unix:///run/crio/crio.sock", Timeout: 1500 * time.Millisecond},
		Node: Node{
			RootDir: "/kubelet", PodLogDir: "/logs", Proc: "/host/proc", Sys: "/host/sys", PodsCgroup: "/kubepods.slice",
		},
		Eviction: Eviction{
			Interval: 5 * time.Second, MaxPodGracePeriod: time.Minute, PressureTransitionPeriod: 30 * time.Second,
			SoftForgive: 0, StopTimeout: time.Second, DirectKill: DirectKillFallback, MemoryReclaim: true,
			StallWindow: time.Second, StallFloor: policy.Bytes(500 << 20),
			Thresholds: []policy.Threshold{
				{Signal: policy.MemoryAvailable, Kind: policy.Hard, Value: policy.Bytes(1 << 30), MinReclaim: policy.Bytes(500 << 20)},
				{Signal: policy.MemoryStall, Kind: policy.Hard, Value: policy.Percent(80)},
				{Signal: policy.MemoryAvailable, Kind: policy.Soft, Value: policy.Bytes(3 << 29), Grace: 90 * time.Second, MinReclaim: policy.Bytes(500 << 20)},
				{Signal: policy.NodeFSAvailable, Kind: policy.Hard, Value: policy.Percent(10)},
				{Signal: policy.NodeFSInodesFree, Kind: policy.Hard, Value: policy.Percent(5)},
				{Signal: policy.ImageFSAvailable, Kind: policy.Hard, Value: policy.Percent(15), MinReclaim: policy.Percent(5)},
			},
			Off: []policy.Threshold{
				{Signal: policy.PIDAvailable, Kind: policy.Hard, Value: policy.Percent(0)},
				{Signal: policy.ImageFSInodesFree, Kind: policy.Hard, Value: policy.Percent(100)},
			},
		},
		Rank: Rank{
			Memory: []policy.Key{policy.KeyQoS, policy.KeyGrowth}, Disk: []policy.Key{policy.KeyUsage},
			Inodes: []policy.Key{policy.KeyQoS}, PID: []policy.Key{policy.KeyUsage, policy.KeyPriority},
		},
		Priorities: []PriorityRule{
			{rule("batch-*", "", map[string]string{"tier": "spot", "app.kubernetes.io/name": "a*"}), -10}, {rule("", "*", nil), 0},
		},
		Protects:    []policy.Rule{rule("monitoring", "prometheus-?", nil)},
		Limits:      []LimitRule{{rule("", "", map[string]string{"ci": ""}), 2 << 30}},
		Annotations: Annotations{[]string{"kube-system", "ops-*"}},
		Budget: Budget{policy.BudgetConfig{
			Hard: policy.Bucket{Burst: 5, Every: 10 * time.Second}, Soft: policy.Bucket{Burst: 2, Every: time.Minute},
		}},
		Backoff:    Backoff{policy.BackoffConfig{First: time.Second, Max: time.Minute, Reset: time.Minute}},
		Admission:  Admission{AdmissionStop},
		Fleet:      Fleet{Enabled: true},
		Containers: Containers{MinAge: 0, MaxPerContainer: -1, Max: 100},
		Images: Images{
			Prune: PruneAlways, High: policy.Percent(100), Low: mustQuantity(t, "99.5%"), MinAge: time.Hour, MaxAge: 720 * time.Hour,
			Keep: []string{"registry.example.com/base/*", "sha256:0*"}, AirgapDirs: []string{"/images"},
		},
		History: History{Dir: "/var/lib/criguard", Passes: 10},
		Metrics: Metrics{"[::1]:9480", "/metrics/criguard.prom"},
		Hooks: []Hook{
			{[]EventKind{EventStop}, []string{"/bin/on-stop"}, 10 * time.Second},
			{[]EventKind{EventCondition, EventAlarm}, []string{"/bin/on-event", "-v"}, time.Minute},
		},
	}
	got := withoutFile(goodConfig(t, string(text)))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
	named := strings.Split(got.Effective(), "\n")
	for _, line := range strings.Split(Default().Effective(), "\n") {
		key, _, _ := strings.Cut(line, " =")
		if !slices.ContainsFunc(named, func(l string) bool { return strings.HasPrefix(l, key) }) {
			t.Errorf("%s is not in every.toml", key)
		}
	}
}

func mustQuantity(t *testing.T, s string) policy.Quantity {
	t.Helper()
	q, err := policy.ParseQuantity(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestParseConfigAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"byte order mark":             "\ufeffmode = 'observe'",
		"replacement character":       "mode = 'observe' # \ufffd",
		"windows line ends":           "mode = 'observe'\r\n[images]\r\nhigh = '90%'\r\n",
		"bare endpoint":               "[runtime]\nendpoint = '/run/containerd/containerd.sock'",
		"longest endpoint":            "[runtime]\nendpoint = 'unix:///" + strings.Repeat("x", 106) + "'",
		"metrics by name":             "[metrics]\nlisten = 'localhost:9480'",
		"metrics anywhere in 127/8":   "[metrics]\nlisten = '127.3.2.1:1'",
		"no back-off":                 "[backoff]\nfirst = '0s'\nmax = '0s'\nreset = '0s'",
		"one part of a bucket":        "[budget]\nhard = {burst = 1}",
		"grace of what is off":        "[eviction.soft]\n'memory.available' = '0%'\n[eviction.soft_grace_period]\n'memory.available' = '1m'",
		"soft that is off, no grace":  "[eviction.soft]\n'memory.available' = '100%'",
		"minimum reclaim of default":  "[eviction.minimum_reclaim]\n'pid.available' = '100'",
		"no grace at all":             "[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = '0s'",
		"no hierarchy":                "eviction = {hard = {'memory.available' = '1Gi'}}",
		"dotted keys":                 "eviction.hard.'memory.available' = '1Gi'\nimages.high = '90%'",
		"rules in a list":             "protect = [{name = 'a'}, {name = 'b'}]",
		"labels in a table":           "[[protect]]\n[protect.labels]\napp = 'a'",
		"depth within the bound":      "protect = [{labels = {a = 'b'}}]",
		"number with underscores":     "[history]\npasses = 1_000",
		"priority at an end":          "[[priority]]\nname = '*'\nvalue = -2147483648",
		"high of everything":          "[images]\nhigh = '100%'\nlow = '0%'",
		"watermarks a hair apart":     "[images]\nhigh = '85%'\nlow = '84.999999999%'",
		"keep a digest":               "[images]\nkeep = ['*@sha256:abc']",
		"string over several lines":   "[[protect]]\nname = \"\"\"a\"\"\"",
		"quoted keys":                 "\"mode\" = 'observe'\n['images']\n'high' = '90%'",
		"cgroup of the systemd style": "[node]\npods_cgroup = '/kubepods.slice'",
	} {
		t.Run(name, func(t *testing.T) {
			if cfg := goodConfig(t, text); !slices.Equal(cfg.Files, []string{"test.toml"}) {
				t.Errorf("file is %q", cfg.Files)
			}
		})
	}
}

// Configured thresholds override the defaults signal by signal, unlike in a kubelet.
func TestParseConfigMergesThresholds(t *testing.T) {
	cfg := goodConfig(t, "[eviction.hard]\n'memory.available' = '1Gi'\n'swap.available' = '10%'\n'nodefs.available' = '0%'")
	var got []string
	for _, th := range cfg.Eviction.Thresholds {
		got = append(got, th.String()+"="+th.Value.String())
	}
	want := []string{
		"memory.available:hard=1Gi", "swap.available:hard=10%", "pid.available:hard=5%",
		"nodefs.inodesFree:hard=5%", "imagefs.available:hard=15%", "imagefs.inodesFree:hard=5%",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if off := cfg.Eviction.Off; len(off) != 1 || off[0].Signal != policy.NodeFSAvailable {
		t.Errorf("off: %v", off)
	}
	if again := Default(); len(again.Eviction.Off) != 0 {
		t.Errorf("the defaults have changed: %v", again.Eviction)
	}
}

func TestLoadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte("mode = 'observe'"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path)
	if err != nil || cfg.Mode != ModeObserve || !slices.Equal(cfg.Files, []string{path}) {
		t.Errorf("named: %v, %+v", err, cfg)
	}
	optional := func(path string) Paths { return Paths{File: path, Optional: true} }
	if cfg, err = optional(path).Load(); err != nil || !slices.Equal(cfg.Files, []string{path}) {
		t.Errorf("there: %v, %+v", err, cfg)
	}
	cfg, err = optional(path + ".none").Load()
	if err != nil || len(cfg.Diff(Default())) > 0 {
		t.Errorf("not there: %v, %+v", err, cfg)
	}
	if notes := cfg.Notes(); len(notes) != 1 || notes[0] != "/etc/criguard/config.toml not found, using the defaults" {
		t.Errorf("notes %q", notes)
	}
	if err := os.WriteFile(path, []byte("mode = 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := optional(path).Load(); err == nil {
		t.Error("a bad file that is there is no error")
	}
}

func TestRankKeys(t *testing.T) {
	r := Rank{
		Memory: []policy.Key{policy.KeyGrowth}, Disk: []policy.Key{policy.KeyUsage},
		Inodes: []policy.Key{policy.KeyQoS}, PID: []policy.Key{policy.KeyPriority},
	}
	for res, want := range map[policy.Resource]policy.Key{
		policy.ResourceMemory: policy.KeyGrowth, policy.ResourceDisk: policy.KeyUsage,
		policy.ResourceInodes: policy.KeyQoS, policy.ResourcePIDs: policy.KeyPriority,
	} {
		if got := r.Keys(res); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v", res, got)
		}
	}
}

func TestTrustedNamespaces(t *testing.T) {
	a := Annotations{[]string{"ops-*", "infra"}}
	for namespace, want := range map[string]bool{"ops-1": true, "infra": true, "infra2": false, "": false, "default": false} {
		if got := a.Trusts(namespace); got != want {
			t.Errorf("%q: %v", namespace, got)
		}
	}
	if (Annotations{}).Trusts("default") {
		t.Error("without trust, a namespace is trusted")
	}
}

func TestConfigNotes(t *testing.T) {
	const soft = "[eviction.soft_grace_period]\n'memory.available' = '1m'\n[eviction.soft]\n'memory.available' = "
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"none", "", nil},
		{"soft above hard", soft + "'200Mi'", nil},
		{"soft as hard", soft + "'100Mi'", []string{"the soft threshold memory.available = 100Mi is not above the hard threshold of 100Mi, which is met first"}},
		{"soft in another unit", soft + "'1%'", nil},
		{"pruning under pressure only", "[eviction.hard]\n'imagefs.available' = '15.1%'", []string{"the hard threshold imagefs.available = 15.1% is met before images.high = 85% is reached: criguard removes unused images only under pressure"}},
		{"a forgotten unit", "[eviction.hard]\n'memory.available' = '200'\n'nodefs.available' = '20Ki'\n'pid.available' = '200'\n'nodefs.inodesFree' = '200'", []string{
			"the hard threshold memory.available = 200 is below 1Mi: an amount without a unit is in bytes",
			"the hard threshold nodefs.available = 20Ki is below 1Mi: an amount without a unit is in bytes",
		}},
		{"no pruning", "[eviction.hard]\n'imagefs.available' = '15.1%'\n[images]\nprune = 'never'", nil},
		{"threshold in bytes", "[eviction.hard]\n'imagefs.available' = '15Gi'", nil},
		{"stall that only causes warnings", "[eviction]\nstall_floor = '0%'\nhard = {'memory.stall' = '80%'}", []string{"eviction.stall_floor is 0: the hard threshold memory.stall only causes warnings"}},
		{"trust in all", "[annotations]\ntrusted_namespaces = ['*']", []string{`annotations.trusted_namespaces contains "*": every pod can protect itself`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := goodConfig(t, test.text).Notes(); !slices.Equal(got, test.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Whatever the configuration allows, a budget without tokens allows no stop.
func TestBudgetLimits(t *testing.T) {
	for _, burst := range []int{1, 3, maxStops} {
		for _, every := range []string{"720h", "721h", "876000h"} {
			c, err := Parse("test.toml", strings.NewReader(fmt.Sprintf("[budget]\nper_hour = 0\nhard = {burst = %d, every = '%s'}\n", burst, every)))
			if (err == nil) != (every == "720h") {
				t.Errorf("every = %s: %v", every, err)
			}
			if err != nil {
				continue
			}
			r, stops := policy.NewRestraint("boot"), 0
			r.Configure(c.Budget.Policy(), c.Backoff.Policy())
			for i := range burst + 10 {
				now := 50*365*24*time.Hour + time.Duration(i)*time.Second
				s := policy.Stop{Workload: strconv.Itoa(i), Sandbox: strconv.Itoa(i), Kind: policy.Hard}
				if r.Check(&s, now).By == "" {
					r.Begin(s, now)
					stops++
				}
			}
			if stops != burst {
				t.Errorf("burst = %d, every = %s: %d stops", burst, every, stops)
			}
		}
	}
}
