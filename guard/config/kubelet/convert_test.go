package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// fromKubelet converts a configuration that must be valid literally, and parses the result.
func fromKubelet(t *testing.T, file string, dropIns ...string) (config.Config, string) {
	t.Helper()
	return converted(t, Options{File: file, DropIns: dropIns, Exact: true})
}

func converted(t *testing.T, o Options) (config.Config, string) {
	t.Helper()
	text, err := Convert(o)
	if err != nil {
		t.Fatal(err)
	}
	return configtest.Parse(t, text), text
}

// kubeletFile writes a kubelet's configuration with the given text after its kind.
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

// thresholdsOf lists the effective thresholds on a node whose pods cgroup has a limit.
func thresholdsOf(cfg config.Config) (all []string) {
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

// The thresholds are the ones that the kubelet would evict by, regardless of criguard's defaults.
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
			cfg, text := fromKubelet(t, filepath.Join("testdata", file))
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

// Other fields that have a key are converted, too.
func TestFromKubeletKeys(t *testing.T) {
	for _, c := range []struct {
		text string
		see  func(config.Config) any
		want any
	}{
		{"containerRuntimeEndpoint: unix:///run/crio/crio.sock", func(c config.Config) any { return c.Runtime.Endpoint }, "unix:///run/crio/crio.sock"},
		{"containerRuntimeEndpoint: /run/crio/crio.sock", func(c config.Config) any { return c.Runtime.Endpoint }, "/run/crio/crio.sock"},
		{"containerRuntimeEndpoint: unix:/run/crio/crio.sock", func(c config.Config) any { return c.Runtime.Endpoint }, "unix:/run/crio/crio.sock"},
		{"containerRuntimeEndpoint: npipe:////./pipe/x", func(c config.Config) any { return c.Runtime.Endpoint }, ""},
		{`podLogsDir: "/a\u0007\"]\nb"`, func(c config.Config) any { return c.Node.PodLogDir }, "/a\a\"]\nb"},
		{"cgroupRoot: /", func(c config.Config) any { return c.Node.PodsCgroup }, ""},
		{"cgroupRoot: /a/b", func(c config.Config) any { return c.Node.PodsCgroup }, ""},
		{"cgroupRoot: /a/b\ncgroupDriver: cgroupfs", func(c config.Config) any { return c.Node.PodsCgroup }, "/a/b/kubepods"},
		{"cgroupRoot: /a/b-c\ncgroupDriver: systemd", func(c config.Config) any { return c.Node.PodsCgroup }, "/a.slice/a-b_c.slice/a-b_c-kubepods.slice"},
		{"cgroupRoot: /a\ncgroupsPerQOS: false", func(c config.Config) any { return c.Node.PodsCgroup }, ""},
		{"evictionMaxPodGracePeriod: 5", func(c config.Config) any { return c.Eviction.MaxPodGracePeriod }, 5 * time.Second},
		{"evictionMaxPodGracePeriod: -1", func(c config.Config) any { return c.Eviction.MaxPodGracePeriod }, time.Duration(0)},
		{"evictionMaxPodGracePeriod: 9000000000", func(c config.Config) any { return c.Eviction.MaxPodGracePeriod }, 24 * time.Hour},
		{"{}", func(c config.Config) any { return c.Eviction.MaxPodGracePeriod }, 30 * time.Second},
		{"evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}", func(c config.Config) any { return c.Eviction.MaxPodGracePeriod }, time.Duration(0)},
		{"evictionPressureTransitionPeriod: 0s", func(c config.Config) any { return c.Eviction.PressureTransitionPeriod }, 5 * time.Minute},
		{"evictionPressureTransitionPeriod: 30s", func(c config.Config) any { return c.Eviction.PressureTransitionPeriod }, 30 * time.Second},
		{"imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60", func(c config.Config) any { return c.Images.High.String() + " " + c.Images.Low.String() }, "70% 60%"},
		{"imageMinimumGCAge: 0s", func(c config.Config) any { return c.Images.MinAge }, 2 * time.Minute},
		{"imageMinimumGCAge: 7m", func(c config.Config) any { return c.Images.MinAge }, 7 * time.Minute},
		{"imageMaximumGCAge: 24h", func(c config.Config) any { return c.Images.MaxAge }, 24 * time.Hour},
		{"evictionHard: {}", func(c config.Config) any { return thresholdsOf(c) }, []string(nil)},
		{"evictionHard: null\nenforceNodeAllocatable: []", func(c config.Config) any { return len(thresholdsOf(c)) }, 7},
		{"evictionHard: &h {memory.available: 1Gi}\nevictionMinimumReclaim: *h", func(c config.Config) any { return thresholdsOf(c)[0] }, "hard memory.available 1Gi + 1Gi"},
		{"a: &a {memory.available: 1Gi}\nevictionHard: {<<: *a}", func(c config.Config) any { return thresholdsOf(c)[0] }, "hard memory.available 1Gi"},
		{"a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), func(c config.Config) any { return len(thresholdsOf(c)) }, 8},
		{"evictionHard: {memory.available: 100%, pid.available: 5%}", func(c config.Config) any { return thresholdsOf(c) }, []string{"hard pid.available 5%"}},
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

// Drop-ins add to a file whose defaults are already set; null removes a field.
func TestFromKubeletDropIns(t *testing.T) {
	dir := t.TempDir()
	file := kubeletFile(t, filepath.Join(dir, "config.yaml"), "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\n")
	kubeletFile(t, filepath.Join(dir, "d/10.conf"), "evictionHard: {memory.available: 1Gi, pid.available: 1%}\nimageGCHighThresholdPercent: 75\n")
	kubeletFile(t, filepath.Join(dir, "d/20.conf"), "evictionHard: {memory.available: 2Gi, imagefs.inodesFree: null}\n")
	kubeletFile(t, filepath.Join(dir, "d/30.yaml"), "evictionHard: {memory.available: 3Gi}\n") // not *.conf
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

// An error names the line of each field that a kubelet would reject, and of each exceeded limit.
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
		{"percentages", "imageGCHighThresholdPercent: 50\nimageGCLowThresholdPercent: 60", "imageGCLowThresholdPercent", "must be below imageGCHighThresholdPercent, which is 50", 4},
		{"a percentage against a default", "imageGCHighThresholdPercent: 80", "imageGCHighThresholdPercent", "must be above imageGCLowThresholdPercent, which is 80 by default", 3},
		{"a misspelt field", "evictionSotf: {memory.available: 600Mi}", "evictionSotf", "unknown field (hint: did you mean \"evictionSoft\"?)", 3},
		{"a field in other letters", "evictionhard: {memory.available: 600Mi}", "evictionhard", "unknown field (hint: did you mean \"evictionHard\"?)", 3},
		{"the beginning of a field", "imageMinimumGC: 2m", "imageMinimumGC", "unknown field (hint: did you mean \"imageMinimumGCAge\"?)", 3},
		{"enforce", "enforceNodeAllocatable: pods", "enforceNodeAllocatable", "must be a list", 3},
		{"twice", "cgroupRoot: /\ncgroupRoot: /a", "", `mapping key "cgroupRoot" already defined at line 3`, 4},
		{"a key of parts", "? [a]\n: b", "", "cannot unmarshal !!seq into string", 3},
		{"another document", "---\nkind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1", "", "must have one KubeletConfiguration", 3},
		{"no YAML", "a: [", "", "did not find expected node content", 3},
		{"a bomb of aliases", bomb, "", "document contains excessive aliasing", 0},
		{"an alias of itself", "a: &a [*a]", "", "anchor 'a' value contains itself", 0},
		{"great depth", "a: " + strings.Repeat("[", 256<<10-200), "", "exceeded max depth of 10000", 0},
		{"keys", strings.Repeat("a:\n", 10_001), "", "must have at most 20000 keys and values", 1},
		{"documents", strings.Repeat("---\na: b\n", 40), "", "must have at most 32 documents", 0},
		{"size", strings.Repeat("#", 256<<10), "", "must be at most 256 KiB", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := kubeletFile(t, filepath.Join(t.TempDir(), "config.yaml"), c.text)
			began := time.Now()
			text, err := Convert(Options{File: file})
			if err == nil {
				t.Fatalf("no error, but\n%s", text)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("took %s", d)
			}
			e := schema.Errors(err)[0]
			if e.File != file || e.Key != c.key || !strings.Contains(e.Error(), c.rule) || c.line != 0 && e.Line != c.line {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("another kind", func(t *testing.T) {
		if _, err := Convert(Options{File: "../../../config.example.toml"}); !errors.Is(err, schema.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
	notKubelet := "must be a KubeletConfiguration, with apiVersion and kind, or a configuration of k3s or RKE2 (hint: this is probably not a kubelet configuration)"
	for name, text := range map[string]string{"flags": "KUBELET_KUBEADM_ARGS=\"--max-pods=3\"\n", "a list": "- a\n", "TOML": "mode = \"observe\"\n"} {
		t.Run(name, func(t *testing.T) {
			if _, err := Convert(Options{File: write(t, filepath.Join(t.TempDir(), "a"), text)}); err == nil || !strings.HasSuffix(err.Error(), ": "+notKubelet) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		if _, err := Convert(Options{File: "/not/there"}); !errors.Is(err, fs.ErrNotExist) || len(schema.Errors(err)) != 1 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, err := Convert(Options{File: "testdata/k3s.yaml", DropIns: []string{"/not/there"}}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// Every field is either converted or mentioned in a comment.
func TestFromKubeletMentionsEveryField(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
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
		var fields map[string]any
		for dec := yaml.NewDecoder(bytes.NewReader(b)); fields["kind"] != "KubeletConfiguration"; {
			if err := dec.Decode(&fields); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(carried, name) && !strings.Contains(text, " "+name) {
				t.Errorf("%s: %s is not mentioned", file, name)
			}
		}
	}
}

// criguard's defaults stay in force where the kubelet has no threshold, as the TOML says, but not where the
// kubelet switches one off.
func TestFromKubeletKeepsDefaults(t *testing.T) {
	cfg, text := converted(t, Options{File: "testdata/k3s.yaml"})
	want := []string{
		"hard memory.available 100Mi", "hard allocatableMemory.available 100Mi", "hard pid.available 5%", "hard nodefs.available 5% + 10%", "hard nodefs.inodesFree 5%",
		"hard imagefs.available 5% + 10%", "hard imagefs.inodesFree 5%", "hard containerfs.available 5% + 10%", "hard containerfs.inodesFree 5%",
	}
	if got := thresholdsOf(cfg); !slices.Equal(got, want) {
		t.Errorf("got %q from\n%s", got, text)
	}
	for _, line := range []string{`"memory.available" = "100Mi" # criguard's default: the kubelet has no threshold for it`, "--exact switches it off"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if _, text := converted(t, Options{File: kubeletFile(t, filepath.Join(t.TempDir(), "config.yaml"), "podLogsDir: /data/pods")}); !strings.Contains(text, "the unit needs ReadWritePaths= for it") {
		t.Errorf("%s", text)
	}
	cfg, text = converted(t, Options{File: kubeletFile(t, filepath.Join(t.TempDir(), "config.yaml"), "evictionHard: {memory.available: 0%}")})
	if got := thresholdsOf(cfg); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "emory") }) || len(got) == 0 {
		t.Errorf("got %q from\n%s", got, text)
	}
}

// Any input either yields an error or a valid configuration.
func FuzzFromKubelet(f *testing.F) {
	files, err := filepath.Glob("testdata/*")
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
		c := &conversion{files: []string{"fuzz"}}
		if err := c.parse("fuzz", text); err != nil {
			c.addYAML("fuzz", err)
		}
		toml, err := c.convert()
		if err != nil {
			for _, e := range schema.Errors(err) {
				if e.Rule == "" || !errors.Is(e, schema.ErrInvalid) {
					t.Fatalf("%#v", e)
				}
			}
			return
		}
		if _, err := config.Parse("fuzz", strings.NewReader(toml)); err != nil {
			t.Fatalf("%v in\n%s", err, toml)
		}
	})
}

// A configuration may come through a pipe, which can be read only once.
func TestFromKubeletPipe(t *testing.T) {
	for _, text := range []string{
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {memory.available: 7Mi}\n",
		"kubelet-arg: ['eviction-hard=memory.available<7Mi']\n",
	} {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteString(text); err != nil { // a pipe has room for it
			t.Fatal(err)
		}
		_ = in.Close()
		cfg, _ := fromKubelet(t, fmt.Sprintf("/dev/fd/%d", out.Fd()))
		if got := thresholdsOf(cfg); !slices.Contains(got, "hard memory.available 7Mi") {
			t.Errorf("%s: %q", text, got)
		}
		_ = out.Close()
	}
}
