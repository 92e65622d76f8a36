package guard

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

	"github.com/criguard/criguard/policy"
)

// fromKubelet carries a configuration over that must be good, and reads what it came
// to as criguard does.
func fromKubelet(t *testing.T, file string, dropIns ...string) (Config, string) {
	t.Helper()
	text, err := FromKubelet(file, dropIns...)
	if err != nil {
		t.Fatal(err)
	}
	return goodConfig(t, text), text
}

// kubeletFile writes a configuration of a kubelet: what it says beside its kind.
func kubeletFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// thresholdsOf lists what is acted on, on a node with a limit of the pods' cgroup.
func thresholdsOf(cfg Config) (all []string) {
	for _, h := range policy.Derive(cfg.Eviction.Thresholds, policy.SingleFS, true, cfg.Eviction.Off...) {
		text := fmt.Sprintf("%s %s %s", h.Kind, h.Signal, h.Value)
		if !h.MinReclaim.IsZero() {
			text += " + " + h.MinReclaim.String()
		}
		if h.Kind == policy.Soft {
			text += " for " + h.Grace.String()
		}
		all = append(all, text)
	}
	return all
}

// The thresholds are those that the kubelet would evict by, whatever criguard's
// defaults are.
func TestFromKubelet(t *testing.T) {
	for file, want := range map[string][]string{
		"kubeadm.yaml": {
			"hard memory.available 100Mi", "hard allocatableMemory.available 100Mi", "hard nodefs.available 10%", "hard nodefs.inodesFree 5%",
			"hard imagefs.available 15%", "hard imagefs.inodesFree 5%", "hard containerfs.available 10%", "hard containerfs.inodesFree 5%",
		},
		"documentation.yaml": {
			"hard memory.available 100Mi", "hard allocatableMemory.available 100Mi", "hard nodefs.available 10%", "hard nodefs.inodesFree 5%",
			"hard imagefs.available 15%", "hard imagefs.inodesFree 5%", "hard containerfs.available 10%", "hard containerfs.inodesFree 5%",
		},
		"k3s.yaml": {"hard nodefs.available 5% + 10%", "hard imagefs.available 5% + 10%", "hard containerfs.available 5% + 10%"},
		"eks.json": {
			"hard memory.available 100Mi", "hard allocatableMemory.available 100Mi", "hard nodefs.available 10%", "hard nodefs.inodesFree 5%",
			"hard containerfs.available 10%", "hard containerfs.inodesFree 5%",
		},
		"gke.yaml": {
			"hard memory.available 100Mi", "hard allocatableMemory.available 100Mi", "hard pid.available 10%", "hard nodefs.available 10%",
			"hard nodefs.inodesFree 5%", "hard containerfs.available 10%", "hard containerfs.inodesFree 5%",
		},
		"soft.yaml": {
			"hard memory.available 1%", "soft memory.available 2% for 1m30s", "hard nodefs.available 10% + 500Mi", "hard nodefs.inodesFree 5%",
			"hard imagefs.available 15%", "hard imagefs.inodesFree 5%", "hard containerfs.available 10% + 500Mi", "hard containerfs.inodesFree 5%",
			"soft nodefs.available 20Gi + 500Mi for 2m0s", "soft containerfs.available 20Gi + 500Mi for 2m0s",
		},
	} {
		t.Run(file, func(t *testing.T) {
			cfg, text := fromKubelet(t, filepath.Join("testdata/kubelet", file))
			if got := thresholdsOf(cfg); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s\nfrom\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), text)
			}
			for i, line := range strings.Split(text, "\n") {
				if strings.TrimRight(line, " ") != line {
					t.Errorf("line %d ends in blanks", i+1)
				}
			}
		})
	}
}

// What else has a key here is carried over, too.
func TestFromKubeletKeys(t *testing.T) {
	for _, c := range []struct {
		text string
		see  func(Config) any
		want any
	}{
		{"containerRuntimeEndpoint: unix:///run/crio/crio.sock", func(c Config) any { return c.Runtime.Endpoint }, "unix:///run/crio/crio.sock"},
		{"containerRuntimeEndpoint: /run/crio/crio.sock", func(c Config) any { return c.Runtime.Endpoint }, "/run/crio/crio.sock"},
		{"containerRuntimeEndpoint: npipe:////./pipe/x", func(c Config) any { return c.Runtime.Endpoint }, ""},
		{`podLogsDir: "/a\u0007\"]\nb"`, func(c Config) any { return c.Node.PodLogDir }, "/a\a\"]\nb"},
		{"cgroupRoot: /", func(c Config) any { return c.Node.PodsCgroup }, ""},
		{"cgroupRoot: /a/b", func(c Config) any { return c.Node.PodsCgroup }, "/a/b/kubepods"},
		{"cgroupRoot: /a/b-c\ncgroupDriver: systemd", func(c Config) any { return c.Node.PodsCgroup }, "/a.slice/a-b_c.slice/a-b_c-kubepods.slice"},
		{"cgroupRoot: /a\ncgroupsPerQOS: false", func(c Config) any { return c.Node.PodsCgroup }, ""},
		{"evictionMaxPodGracePeriod: 5", func(c Config) any { return c.Eviction.MaxPodGracePeriod }, 5 * time.Second},
		{"evictionMaxPodGracePeriod: -1", func(c Config) any { return c.Eviction.MaxPodGracePeriod }, time.Duration(0)},
		{"evictionMaxPodGracePeriod: 9000000000", func(c Config) any { return c.Eviction.MaxPodGracePeriod }, 24 * time.Hour},
		{"{}", func(c Config) any { return c.Eviction.MaxPodGracePeriod }, 30 * time.Second},
		{"evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}", func(c Config) any { return c.Eviction.MaxPodGracePeriod }, time.Duration(0)},
		{"evictionPressureTransitionPeriod: 0s", func(c Config) any { return c.Eviction.PressureTransitionPeriod }, 5 * time.Minute},
		{"evictionPressureTransitionPeriod: 30s", func(c Config) any { return c.Eviction.PressureTransitionPeriod }, 30 * time.Second},
		{"imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60", func(c Config) any { return c.Images.High.String() + " " + c.Images.Low.String() }, "70% 60%"},
		{"imageMinimumGCAge: 0s", func(c Config) any { return c.Images.MinAge }, 2 * time.Minute},
		{"imageMinimumGCAge: 7m", func(c Config) any { return c.Images.MinAge }, 7 * time.Minute},
		{"imageMaximumGCAge: 24h", func(c Config) any { return c.Images.MaxAge }, 24 * time.Hour},
		{"evictionHard: {}", func(c Config) any { return thresholdsOf(c) }, []string(nil)},
		{"evictionHard: null\nenforceNodeAllocatable: []", func(c Config) any { return len(thresholdsOf(c)) }, 7},
		{"evictionHard: &h {memory.available: 1Gi}\nevictionMinimumReclaim: *h", func(c Config) any { return thresholdsOf(c)[0] }, "hard memory.available 1Gi + 1Gi"},
		{"evictionHard: {memory.available: 100%, pid.available: 5%}", func(c Config) any { return thresholdsOf(c) }, []string{"hard pid.available 5%"}},
	} {
		t.Run(c.text, func(t *testing.T) {
			text := c.text
			if text == "{}" {
				text = ""
			}
			cfg, toml := fromKubelet(t, kubeletFile(t, filepath.Join(t.TempDir(), "config.yaml"), text))
			if got := c.see(cfg); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v from\n%s", got, c.want, toml)
			}
		})
	}
}

// Drop-ins add to a file that has its defaults already; null removes.
func TestFromKubeletDropIns(t *testing.T) {
	dir := t.TempDir()
	file := kubeletFile(t, filepath.Join(dir, "config.yaml"), "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\n")
	kubeletFile(t, filepath.Join(dir, "d/10.conf"), "evictionHard: {memory.available: 1Gi, pid.available: 1%}\nimageGCHighThresholdPercent: 75\n")
	kubeletFile(t, filepath.Join(dir, "d/20.conf"), "evictionHard: {memory.available: 2Gi, imagefs.inodesFree: null}\n")
	kubeletFile(t, filepath.Join(dir, "d/30.yaml"), "evictionHard: {memory.available: 3Gi}\n") // no .conf
	cfg, text := fromKubelet(t, file, filepath.Join(dir, "d"))
	want := []string{
		"hard memory.available 2Gi", "hard allocatableMemory.available 2Gi", "hard pid.available 1%", "hard nodefs.available 10%", "hard nodefs.inodesFree 5%",
		"hard imagefs.available 15%", "hard containerfs.available 10%", "hard containerfs.inodesFree 5%",
	}
	if got := thresholdsOf(cfg); !slices.Equal(got, want) {
		t.Errorf("got %q from\n%s", got, text)
	}
	if cfg.Images.High != policy.Percent(75) || cfg.Images.Low != policy.Percent(60) {
		t.Errorf("images: %+v", cfg.Images)
	}
}

// What a kubelet refuses is told with its line, and so is what is too much.
func TestFromKubeletMistakes(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i)
	}
	for _, c := range []struct {
		name, text, key, rule string
		line                  int
	}{
		{"a value", "evictionHard:\n  memory.available: 120%", `eviction.hard."memory.available"`, "must not be above 100%", 4},
		{"nothing", "evictionHard: {memory.available: '0'}", `eviction.hard."memory.available"`, "must be above 0", 3},
		{"a number", "evictionHard: {memory.available: 100}", `eviction.hard."memory.available"`, "must be a string", 3},
		{"a list", "evictionHard: [a]", "evictionHard", "must be a table", 3},
		{"a signal", "evictionSoft:\n  memory.free: 1Gi\nevictionSoftGracePeriod: {memory.free: 1m}", `eviction.soft."memory.free"`, "unknown signal", 4},
		{"a signal of ours", "evictionHard: {swap.available: 10%}", `evictionHard."swap.available"`, "unknown signal", 3},
		{"no grace period", "\nevictionSoft: {memory.available: 1Gi}", `eviction.soft_grace_period."memory.available"`, "must be set for a soft threshold", 4},
		{"a duration", "imageMinimumGCAge: 2", "imageMinimumGCAge", "must be a string", 3},
		{"a duration without a unit", "imageMinimumGCAge: '2'", "images.min_age", "must have a unit", 3},
		{"a percentage", "imageGCHighThresholdPercent: 85%", "imageGCHighThresholdPercent", "must be a whole number", 3},
		{"percentages", "imageGCHighThresholdPercent: 50\nimageGCLowThresholdPercent: 60", "images.low", "must be below images.high", 4},
		{"enforce", "enforceNodeAllocatable: pods", "enforceNodeAllocatable", "must be a list", 3},
		{"twice", "cgroupRoot: /\ncgroupRoot: /a", "cgroupRoot", "must be named once", 4},
		{"a merge key", "a: &a {b: c}\nd: {<<: *a}", "", "must have plain keys", 4},
		{"a key of parts", "? [a]\n: b", "", "must have plain keys", 3},
		{"another document", "---\nkind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1", "", "must have one KubeletConfiguration", 3},
		{"no YAML", "a: [", "", "did not find expected node content", 3},
		{"a bomb of aliases", bomb, "", "must have at most 20000 values, 32 in each other", 0},
		{"an alias of itself", "a: &a [*a]", "", "must have at most 20000 values, 32 in each other", 3},
		{"depth", "a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "", "must have at most 20000 values, 32 in each other", 3},
		{"great depth", "a: " + strings.Repeat("[", maxConfig-200), "", "exceeded max depth of 10000", 0},
		{"documents", strings.Repeat("---\na: b\n", 40), "", "must have at most 32 documents", 0},
		{"size", strings.Repeat("#", maxConfig), "", "must be at most 256 KiB", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := kubeletFile(t, filepath.Join(t.TempDir(), "config.yaml"), c.text)
			began := time.Now()
			text, err := FromKubelet(file)
			if err == nil {
				t.Fatalf("no error, but\n%s", text)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("took %s", d)
			}
			e := unjoin(t, err)[0]
			if e.File != file || e.Key != c.key || !strings.Contains(e.Rule, c.rule) || c.line != 0 && e.Line != c.line {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("another kind", func(t *testing.T) {
		if _, err := FromKubelet("../config.example.toml"); !errors.Is(err, ErrConfig) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no file", func(t *testing.T) {
		if _, err := FromKubelet("/not/there"); !errors.Is(err, fs.ErrNotExist) || len(unjoin(t, err)) != 1 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, err := FromKubelet("testdata/kubelet/k3s.yaml", "/not/there"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// Every field is accounted for: carried over, or told of.
func TestFromKubeletTellsEveryField(t *testing.T) {
	files, err := filepath.Glob("testdata/kubelet/*")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	carried := []string{
		"apiVersion", "kind", "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionMaxPodGracePeriod",
		"evictionPressureTransitionPeriod", "mergeDefaultEvictionSettings", "enforceNodeAllocatable", "containerRuntimeEndpoint", "podLogsDir", "cgroupRoot",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge",
	}
	for _, file := range files {
		_, text := fromKubelet(t, file)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fields, mistake := parseKubelet(file, b)
		if mistake != nil {
			t.Fatal(mistake)
		}
		for _, name := range sortedKeys(fields) {
			if !slices.Contains(carried, name) && !strings.Contains(text, " "+name) {
				t.Errorf("%s: nothing of %s", file, name)
			}
		}
	}
}

// Whatever is read: it is told what is wrong, or what comes of it is good.
func FuzzFromKubelet(f *testing.F) {
	files, err := filepath.Glob("testdata/kubelet/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fields, mistake := parseKubelet("fuzz", text)
		if mistake != nil {
			if mistake.Rule == "" || !errors.Is(mistake, ErrConfig) {
				t.Fatalf("%#v", mistake)
			}
			return
		}
		m := &mistakes{}
		m.begin("fuzz")
		toml, err := convertKubelet(m, fields)
		if err != nil {
			unjoin(t, err)
			return
		}
		if _, err := ParseConfig("fuzz", strings.NewReader(toml)); err != nil {
			t.Fatalf("%v in\n%s", err, toml)
		}
	})
}
