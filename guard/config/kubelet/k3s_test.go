package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/schema"
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
		"a flag that adds to another": {"kubelet-arg: [eviction-hard=pid.available<10%, eviction-hard+=memory.available<1Gi, 'eviction-hard-=pid.available<3%,nodefs.available<7%']\n", "", "", []string{
			"hard memory.available 1Gi", "hard allocatableMemory.available 1Gi", "hard pid.available 10%", "hard nodefs.available 7% + 10%", "hard containerfs.available 7% + 10%",
		}},
		"a flag that adds to k3s's own": {"kubelet-arg: ['eviction-hard+=memory.available<1Gi,nodefs.available<7%', 'eviction-minimum-reclaim-=nodefs.available=1Gi,memory.available=2Gi']\n", "", "", []string{
			"hard memory.available 1Gi + 2Gi", "hard allocatableMemory.available 1Gi + 2Gi", "hard nodefs.available 7% + 10%", "hard imagefs.available 5% + 10%", "hard containerfs.available 7% + 10%",
		}},
		"k3s has none of its own beside drop-ins": {"kubelet-arg: [eviction-hard+=memory.available<1Gi]\n", "", disks, []string{
			"hard memory.available 1Gi", "hard allocatableMemory.available 1Gi",
		}},
		"a list that is repeated": {"kubelet-arg: [eviction-hard=memory.available<500Mi, enforce-node-allocatable=pods, enforce-node-allocatable+=system-reserved]\n", "", "", []string{
			"hard memory.available 500Mi", "hard allocatableMemory.available 500Mi",
		}},
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

// The files of the kubelet's flags --config and --config-dir are read in place of the copies that k3s has made of
// them, in the order of the copies.
func TestFromK3sFilesOfFlags(t *testing.T) {
	for name, c := range map[string]struct {
		managed map[string]string // drop-ins that k3s keeps
		below   string            // where the flags' files are, below the temporary directory
		want    string
	}{
		"k3s has not run":        {nil, "mine", "3Gi 4%"},
		"not copied yet":         {map[string]string{"00-k3s-defaults.conf": "pid.available: 1%"}, "mine", "3Gi 4%"},
		"copied":                 {map[string]string{"10-cli-config.conf": "memory.available: 8Gi, pid.available: 8%", "20-cli-config-dir/a.conf": "pid.available: 9%"}, "mine", "3Gi 4%"},
		"a drop-in between them": {map[string]string{"10-cli-config.conf": "{}", "15.conf": "memory.available: 5Gi, pid.available: 5%"}, "mine", "5Gi 4%"},
		"a drop-in after them":   {map[string]string{"10-cli-config.conf": "{}", "20-cli-config-dir/a.conf": "{}", "50.conf": "pid.available: 7%"}, "mine", "3Gi 7%"},
		"among the drop-ins":     {map[string]string{"z.conf": "pid.available: 6%"}, "agent/etc/kubelet.conf.d", "3Gi 6%"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, text := range c.managed {
				kubeletFile(t, filepath.Join(dir, "agent/etc/kubelet.conf.d", path), "evictionHard: {"+strings.Trim(text, "{}")+"}\n")
			}
			mine := filepath.Join(dir, c.below)
			kubeletFile(t, filepath.Join(mine, "m.conf"), "evictionHard: {memory.available: 3Gi, pid.available: 3%}\n")
			kubeletFile(t, filepath.Join(mine, "n/n.conf"), "evictionHard: {pid.available: 4%}\n")
			file := write(t, filepath.Join(dir, "k3s/config.yaml"), fmt.Sprintf("data-dir: %s\nkubelet-arg: [config=%[2]s/m.conf, --config-dir=%[2]s/n, max-pods=3]\n", dir, mine))
			cfg, text := fromKubelet(t, file)
			got := thresholdsOf(cfg)
			memory, pids, _ := strings.Cut(c.want, " ")
			if !slices.Contains(got, "hard memory.available "+memory) || !slices.Contains(got, "hard pid.available "+pids) {
				t.Errorf("got\n%s\nwant %s from\n%s", strings.Join(got, "\n"), c.want, text)
			}
			if strings.Contains(text, " config,") || strings.Contains(text, "configDir") || !strings.Contains(text, filepath.Join(mine, "m.conf")) || !strings.Contains(text, " maxPods") {
				t.Errorf("got\n%s", text)
			}
		})
	}
	file := write(t, filepath.Join(t.TempDir(), "k3s/config.yaml"), "data-dir: /none\nkubelet-arg: [config=/none/kubelet.yaml]\n")
	if _, err := Convert(Options{File: file}); err == nil || !strings.Contains(err.Error(), "/none/kubelet.yaml") {
		t.Errorf("a missing file of the flag: %v", err)
	}
}

// A default installation of k3s or RKE2 has no configuration file: its defaults apply, and the output says so.
func TestFromK3sWithoutFile(t *testing.T) {
	for _, product := range []string{"k3s", "rke2"} {
		dir := t.TempDir()
		file := filepath.Join(dir, product, "config.yaml")
		write(t, file+".d/10.yaml", "data-dir: "+dir+"\n") // k3s reads drop-ins without the file, too
		cfg, text := fromKubelet(t, file)
		if got := thresholdsOf(cfg); !slices.Contains(got, "hard nodefs.available 5% + 10%") || len(got) != 3 {
			t.Errorf("%s: got %q from\n%s", product, got, text)
		}
		head, _, _ := strings.Cut(text, "\n\n")
		for _, want := range []string{fmt.Sprintf("%q (does not exist: the defaults of %s)", file, product), "command line of " + product, "ExecStart"} {
			if !strings.Contains(head, want) {
				t.Errorf("%q is missing in\n%s", want, head)
			}
		}
		kubeletFile(t, filepath.Join(dir, "agent/etc/kubelet.conf.d/00.conf"), "evictionHard: {memory.available: 2Gi}\n")
		if cfg, text := fromKubelet(t, file); !slices.Contains(thresholdsOf(cfg), "hard memory.available 2Gi") {
			t.Errorf("%s: no drop-ins in\n%s", product, text)
		}
	}
	for _, file := range []string{"/none/config.yaml", "/none/k3s/config.yml"} {
		if _, err := Convert(Options{File: file}); !errors.Is(err, fs.ErrNotExist) && (err == nil || !strings.Contains(err.Error(), "no such file")) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, text := fromKubelet(t, "testdata/kubeadm.yaml"); strings.Contains(text, "ExecStart") || !strings.Contains(text, "the kubelet's command line") {
		t.Errorf("a kubelet's own configuration has a remark on k3s, or none on flags:\n%s", text)
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

// A configuration in which everything is commented out means k3s's defaults, as one that does not exist.
func TestFromK3sWithoutKeys(t *testing.T) {
	for _, text := range []string{"", "# token: abc\n", "---\n"} {
		cfg, out := fromKubelet(t, write(t, filepath.Join(t.TempDir(), "k3s/config.yaml"), text))
		if got := thresholdsOf(cfg); !slices.Contains(got, "hard nodefs.available 5% + 10%") || strings.Contains(out, "does not exist") {
			t.Errorf("%q: got %q from\n%s", text, got, out)
		}
	}
}

// The other flags with an equivalent key are converted, and the rest is mentioned.
func TestFromK3sKeys(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "config.yaml"), `kubelet-arg:
- root-dir=/data/kubelet
- eviction-max-pod-grace-period=7
- eviction-pressure-transition-period=30s
- cgroup-root=/a
- cgroup-driver=cgroupfs
- cgroups-per-qos=true
- image-gc-high-threshold=70
- image-gc-low-threshold=60
- minimum-image-ttl-duration=3m
- minimum-container-ttl-duration=4m
- maximum-dead-containers-per-container=3
- maximum-dead-containers=-1
- pod-max-pids=100
- pod-manifest-path=/manifests
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
	if c := cfg.Containers; c.MinAge != 4*time.Minute || c.MaxPerContainer != 3 || c.Max != -1 {
		t.Errorf("containers %+v", c)
	}
	_, left, _ := strings.Cut(text, "\n# Not converted:\n")
	left, unrelated, _ := strings.Cut(left, "\n# Unrelated to pressure, ")
	for _, name := range []string{"kubeReserved", "failSwapOn", "podPidsLimit", "staticPodPath"} {
		if !strings.Contains(left, "#   "+name+": ") {
			t.Errorf("%s is not explained in\n%s", name, text)
		}
	}
	if _, names, _ := strings.Cut(unrelated, ":"); strings.Trim(names, "# \n") != "maxPods" {
		t.Errorf("unrelated is %q in\n%s", names, text)
	}
}

// k3s imports tarballs from its data directory. Without their names, criguard would remove images that no registry has.
func TestFromK3sAirgapDir(t *testing.T) {
	def := config.Default().Images.AirgapDirs
	for name, c := range map[string]struct {
		product, text string
		want          []string
	}{
		"default":         {"k3s", "token: a\n", def},
		"the default set": {"rke2", "data-dir: /var/lib/rancher/rke2/\n", def},
		"k3s":             {"k3s", "data-dir: /data/k3s\n", []string{"/data/k3s/agent/images"}},
		"RKE2":            {"rke2", "data-dir: /data\nkubelet-arg: [image-gc-high-threshold=90]\n", []string{"/data/agent/images"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, text := fromKubelet(t, write(t, filepath.Join(t.TempDir(), c.product, "config.yaml"), c.text))
			if !slices.Equal(cfg.Images.AirgapDirs, c.want) {
				t.Errorf("got %q, want %q, from\n%s", cfg.Images.AirgapDirs, c.want, text)
			}
		})
	}
}

// A drop-in that is text alone, such as a TOML file, is a mistake.
func TestK3sDropInWithoutKeys(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "k3s/config.yaml"), "data-dir: /none\n")
	dropIn := write(t, file+".d/a.yaml", "mode = \"observe\"\n")
	want := dropIn + ": must be a configuration of k3s or RKE2 (hint: this is probably not a kubelet configuration)"
	if _, err := Convert(Options{File: file}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A drop-in's kubelet-arg replaces the list of an earlier file, but not k3s's own key for the runtime.
func TestFromK3sEndpoint(t *testing.T) {
	for args, want := range map[string]string{"max-pods=50": "unix:///run/x.sock", "container-runtime-endpoint=unix:///run/y.sock": "unix:///run/y.sock"} {
		file := write(t, filepath.Join(t.TempDir(), "k3s/config.yaml"), "data-dir: /none\nkubelet-arg: [max-pods=3]\ncontainer-runtime-endpoint: unix:///run/x.sock\n")
		write(t, file+".d/10.yaml", "kubelet-arg: ["+args+"]\n")
		if cfg, text := fromKubelet(t, file); cfg.Runtime.Endpoint != want {
			t.Errorf("%s: got %q from\n%s", args, cfg.Runtime.Endpoint, text)
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
// Drop-ins that cannot be read are not taken for none: k3s's thresholds would be the wrong ones.
func TestFromK3sUnreadableDropIns(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "agent/etc/kubelet.conf.d")
	write(t, filepath.Dir(own), "") // root may read every directory, but not below a file
	file := write(t, filepath.Join(dir, "k3s/config.yaml"), "data-dir: "+dir+"\n")
	if out, err := Convert(Options{File: file}); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestFromK3sMistakes(t *testing.T) {
	for text, want := range map[string]schema.Error{
		"\n- a=b\n- image-gc-high-threshold=80":     {Line: 3, Key: "imageGCHighThresholdPercent", Rule: "must be above"},
		"\n- eviction-hard=memory.available=1Gi":    {Line: 2, Key: "kubelet-arg", Rule: "must be eviction-hard=SIGNAL<VALUE,…"},
		"\n- a=b\n- eviction-hard=memory.free<1Gi":  {Line: 3, Key: `eviction.hard."memory.free"`, Rule: "unknown signal"},
		"\n- eviction-max-pod-grace-period=long":    {Line: 2, Key: "evictionMaxPodGracePeriod", Rule: "must be a whole number"},
		"\n- [a]":                                   {Line: 2, Key: "kubelet-arg", Rule: "must be a list of strings"},
		"\n- a=b\n- maximum-dead-containers=many":   {Line: 3, Key: "maximumDeadContainers", Rule: "must be a whole number"},
		" [a]\nkubelet-arg: [b]":                    {Line: 0, Rule: "already defined"},
		" [" + strings.Repeat("a=b,", 20_001) + "]": {Line: 1, Rule: "must have at most 20000 keys and values"},
	} {
		file := write(t, filepath.Join(t.TempDir(), "k3s/config.yaml"), "kubelet-arg:"+text+"\n")
		out, err := Convert(Options{File: file})
		all := schema.Errors(err)
		if len(all) == 0 {
			t.Errorf("%.60s: no mistake in\n%s", text, out)
			continue
		}
		if e := all[0]; e.File != file || e.Key != want.Key || !strings.Contains(e.Rule, want.Rule) || want.Line > 0 && e.Line != want.Line {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}
