package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/config"
)

// write creates a file in a directory and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The flags in k3s's configuration and its drop-ins replace the tables of the kubelet's drop-ins.
func TestFromK3s(t *testing.T) {
	const disks = "evictionHard: {nodefs.available: 5%, imagefs.available: 5%, memory.available: 2Gi}\nevictionMinimumReclaim: {nodefs.available: 10%}\n"
	for name, c := range map[string]struct {
		main, dropIn, kubelet string
		want                  []string
	}{
		"no flags": {"server: https://a\nnode-name: kind\nkubelet-arg: []\n", "", "", []string{
			"hard nodefs.available 5% + 10%", "hard imagefs.available 5% + 10%", "hard containerfs.available 5% + 10%",
		}},
		"the kubelet's drop-ins": {"kubelet-arg: [max-pods=50]\n", "", disks, []string{
			"hard memory.available 2Gi", "hard allocatableMemory.available 2Gi", "hard nodefs.available 5% + 10%", "hard nodefs.inodesFree 5%", "hard imagefs.available 5%",
			"hard imagefs.inodesFree 5%", "hard containerfs.available 5% + 10%", "hard containerfs.inodesFree 5%",
		}},
		"a flag over a drop-in": {"kubelet-arg:\n- eviction-hard=memory.available<500Mi,pid.available<10%\n- --eviction-hard=pid.available<3%\n", "", disks, []string{
			"hard memory.available 500Mi", "hard allocatableMemory.available 500Mi", "hard pid.available 3%",
		}},
		"a single flag": {"kubelet-arg: eviction-hard=pid.available<10%\n", "", disks, []string{"hard pid.available 10%"}},
		"another file adds": {"kubelet-arg: [eviction-hard=pid.available<10%]\n", "kubelet-arg+: [eviction-hard=memory.available<1Gi, enforce-node-allocatable=none]\n", "", []string{
			"hard memory.available 1Gi", "hard pid.available 10%",
		}},
		"another file replaces": {"kubelet-arg: [eviction-hard=pid.available<10%]\n", "kubelet-arg: ['eviction-soft=pid.available<5%', eviction-soft-grace-period=pid.available=1m]\n", "", []string{
			"soft pid.available 5% for 1m0s", "hard nodefs.available 5% + 10%", "hard imagefs.available 5% + 10%", "hard containerfs.available 5% + 10%",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := write(t, filepath.Join(dir, "k3s/config.yaml"), "data-dir: "+dir+"\n"+c.main)
			if c.dropIn != "" {
				write(t, file+".d/10.yaml", c.dropIn)
			}
			if c.kubelet != "" {
				kubeletFile(t, filepath.Join(dir, "agent/etc/kubelet.conf.d/00-k3s-defaults.conf"), c.kubelet)
			}
			cfg, text := fromKubelet(t, file)
			if got := thresholdsOf(cfg); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s\nfrom\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"), text)
			}
		})
	}
}

// A configuration without flags for the kubelet is recognized wherever it is, and the thresholds are k3s's.
func TestFromK3sWithoutFlags(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "copied.yaml"), "token: abc\ndata-dir: /none\n")
	cfg, text := fromKubelet(t, file)
	if got := thresholdsOf(cfg); !slices.Contains(got, "hard nodefs.available 5% + 10%") || strings.Count(text, "# k3s's default") != 4 || strings.Contains(text, "the kubelet's default") {
		t.Errorf("got %q from\n%s", got, text)
	}
	file = write(t, filepath.Join(t.TempDir(), "other.yaml"), "a: b\n")
	if _, err := Convert(Options{File: file}); err == nil || !strings.Contains(err.Error(), "or a configuration of k3s or RKE2 (hint: ") {
		t.Errorf("another file: %v", err)
	}
}

// The other flags with an equivalent key are converted, and the rest is mentioned.
func TestFromK3sKeys(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "config.yaml"), `kubelet-arg:
- root-dir=/data/kubelet
- eviction-max-pod-grace-period=7
- eviction-pressure-transition-period=30s
- cgroup-root=/a
- cgroups-per-qos=true
- image-gc-high-threshold=70
- image-gc-low-threshold=60
- minimum-image-ttl-duration=3m
- kube-reserved=cpu=1
- max-pods=50
- fail-swap-on
container-runtime-endpoint: unix:///run/x.sock
`)
	cfg, text := fromKubelet(t, file)
	if e := cfg.Eviction; e.MaxPodGracePeriod != 7*time.Second || e.PressureTransitionPeriod != 30*time.Second {
		t.Errorf("eviction %+v", e)
	}
	if cfg.Node.RootDir != "/data/kubelet" || cfg.Node.PodsCgroup != "/a/kubepods" || cfg.Runtime.Endpoint != "unix:///run/x.sock" {
		t.Errorf("node %+v, runtime %+v", cfg.Node, cfg.Runtime)
	}
	if i := cfg.Images; i.High.String() != "70%" || i.Low.String() != "60%" || i.MinAge != 3*time.Minute {
		t.Errorf("images %+v", i)
	}
	for _, name := range []string{"kubeReserved", "maxPods", "failSwapOn"} {
		if !strings.Contains(text, " "+name) {
			t.Errorf("%s is not mentioned in\n%s", name, text)
		}
	}
}

// A directory of drop-ins is a kubelet's whole configuration on k3s.
func TestFromKubeletDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Convert(Options{File: dir}); err == nil || !strings.Contains(err.Error(), "*.conf") {
		t.Errorf("empty: %v", err)
	}
	kubeletFile(t, filepath.Join(dir, "00-k3s-defaults.conf"), "evictionHard: {nodefs.available: 5%}\n")
	cfg, text := fromKubelet(t, dir)
	if got := thresholdsOf(cfg); !slices.Contains(got, "hard nodefs.available 5%") || !slices.Contains(got, "hard memory.available 100Mi") {
		t.Errorf("got %q from\n%s", got, text)
	}
}

// A mistake in a flag names the file and the line of the flag.
func TestFromK3sMistakes(t *testing.T) {
	for text, want := range map[string]config.Error{
		"\n- a=b\n- image-gc-high-threshold=80":     {Line: 3, Key: "imageGCHighThresholdPercent", Rule: "must be above"},
		"\n- eviction-hard=memory.available=1Gi":    {Line: 2, Key: "kubelet-arg", Rule: "must be eviction-hard=SIGNAL<VALUE,…"},
		"\n- a=b\n- eviction-hard=memory.free<1Gi":  {Line: 3, Key: `eviction.hard."memory.free"`, Rule: "unknown signal"},
		"\n- eviction-max-pod-grace-period=long":    {Line: 2, Key: "evictionMaxPodGracePeriod", Rule: "must be a whole number"},
		"\n- [a]":                                   {Line: 2, Key: "kubelet-arg", Rule: "must be a list of strings"},
		" [a]\nkubelet-arg: [b]":                    {Line: 0, Rule: "already defined"},
		" [" + strings.Repeat("a=b,", 20_001) + "]": {Line: 1, Rule: "must have at most 20000 keys and values"},
	} {
		file := write(t, filepath.Join(t.TempDir(), "k3s/config.yaml"), "kubelet-arg:"+text+"\n")
		out, err := Convert(Options{File: file})
		all := config.Errors(err)
		if len(all) == 0 {
			t.Errorf("%.60s: no mistake in\n%s", text, out)
			continue
		}
		if e := all[0]; e.File != file || e.Key != want.Key || !strings.Contains(e.Rule, want.Rule) || want.Line > 0 && e.Line != want.Line {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}
