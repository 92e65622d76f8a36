package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// sameConfig checks that a configuration survives a round trip through Effective.
func sameConfig(t *testing.T, cfg Config) {
	t.Helper()
	text := cfg.Effective()
	again, err := Parse("test.toml", strings.NewReader(text))
	if err != nil {
		t.Fatalf("read the rendered configuration again: %v\n%s", err, text)
	}
	if !reflect.DeepEqual(withoutFile(again), withoutFile(cfg)) {
		t.Errorf("\ngot  %+v\nwant %+v\nfrom\n%s", again, cfg, text)
	}
	if d := again.Diff(cfg); len(d) > 0 {
		t.Errorf("differs in %v", d)
	}
	if twice := again.Effective(); twice != text {
		t.Errorf("rendered again it is\n%s\nnot\n%s", twice, text)
	}
}

func TestConfigEffectiveReadsBack(t *testing.T) {
	t.Run("defaults", func(t *testing.T) { sameConfig(t, Default()) })
	files, err := filepath.Glob("testdata/config/*.toml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range append(files, "../../config.example.toml") {
		if filepath.Base(file) == "mistakes.toml" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			sameConfig(t, cfg)
		})
	}
	for name, text := range map[string]string{
		"strange text":            "[[protect]]\nname = \"a\\\"\\\\ \\u007f\\U0001F600[[x]]\\n[y]\"\nlabels = {'a.b \"c' = '\\[\\]', '' = '*'}",
		"empty labels":            "[[protect]]\nname = 'a'\nlabels = {}",
		"off with a soft one":     "[eviction.hard]\n'memory.available' = '0%'\n[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = '0s'\n[eviction.minimum_reclaim]\n'memory.available' = '1'",
		"minimum reclaim of none": "[eviction.hard]\n'nodefs.available' = '0%'\n[eviction.minimum_reclaim]\n'nodefs.available' = '1Gi'",
		"no minimum reclaim":      "[eviction.minimum_reclaim]\n'nodefs.available' = '0'",
		"durations":               "[images]\nmin_age = '1h0m30s'\nmax_age = '24h'\nunused_grace = '90m'\nhold_after_runtime_restart = '1m0.5s'",
		"quantities":              "[eviction]\nstall_floor = '1.5Gi'\n[eviction.hard]\n'nodefs.available' = '1e9'\n'pid.available' = '1500'\n'nodefs.inodesFree' = '33.333333333%'",
		"nothing in lists":        "[images]\nairgap_dirs = []\nkeep = []",
		"several rules":           "[[priority]]\nname = 'a'\nvalue = 1\nlabels = {x = 'y'}\n[[priority]]\nname = 'b'\nvalue = 2\n[[limit]]\nname = 'c'\nephemeral_storage = '1000001'",
	} {
		t.Run(name, func(t *testing.T) { sameConfig(t, goodConfig(t, text)) })
	}
}

func TestConfigEffectiveText(t *testing.T) {
	want, err := os.ReadFile("testdata/config/effective.toml")
	if err != nil {
		t.Fatal(err)
	}
	if got := goodConfig(t, "[[protect]]\nname = 'a'\n[images]\nmax_age = '48h'").Effective(); got != string(want) {
		t.Errorf("got\n%s", got)
	}
}

// Effective renders the configuration in force, not the file: flags change a configuration.
func TestConfigEffectiveFollowsChanges(t *testing.T) {
	cfg := Default()
	cfg.Mode, cfg.Runtime.Endpoint = ModeObserve, "/run/x.sock"
	text := cfg.Effective()
	for _, want := range []string{"mode = \"observe\"\n", "endpoint = \"/run/x.sock\"\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if got, want := cfg.Diff(Default()), []string{"mode", "runtime.endpoint"}; !slices.Equal(got, want) {
		t.Errorf("differs in %v", got)
	}
}

func TestConfigDiff(t *testing.T) {
	for _, test := range []struct {
		name, older, newer string
		want               []string
	}{
		{"nothing", "", "", nil},
		{"another spelling", "[images]\nmin_age = '120s'", "[images]\nmin_age = '2m'", nil},
		{"default spelt out", "", "mode = 'enforce'\n[eviction.hard]\n'memory.available' = '102400Ki'", nil},
		{"values", "", "mode = 'observe'\n[budget]\nhard = {burst = 4}\nper_hour = 3", []string{"budget.hard.burst", "budget.per_hour", "mode"}},
		{"a threshold changed", "", "[eviction.hard]\n'memory.available' = '1Gi'", []string{`eviction.hard."memory.available"`}},
		{"a threshold came", "", "[eviction.hard]\n'swap.available' = '10%'", []string{`eviction.hard."swap.available"`}},
		{"a threshold went", "[eviction.hard]\n'swap.available' = '10%'", "", []string{`eviction.hard."swap.available"`}},
		{"a threshold off", "", "[eviction.hard]\n'pid.available' = '0%'", []string{`eviction.hard."pid.available"`}},
		{"a soft threshold", "", "[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = '1m'",
			[]string{`eviction.soft."memory.available"`, `eviction.soft_grace_period."memory.available"`}},
		{"rules", "[[protect]]\nname = 'a'", "[[protect]]\nname = 'b'", []string{"protect"}},
		{"rules of one value", "[[priority]]\nname = 'a'\nvalue = 1", "[[priority]]\nname = 'a'\nvalue = 1", nil},
		{"a rule's value", "[[priority]]\nname = 'a'\nvalue = 1", "[[priority]]\nname = 'a'\nvalue = 2", []string{"priority"}},
		{"a rule's label", "[[limit]]\nlabels = {a = 'b'}\nephemeral_storage = '1Gi'", "[[limit]]\nlabels = {a = 'c'}\nephemeral_storage = '1Gi'", []string{"limit"}},
		{"lists", "[images]\nkeep = ['a']", "[images]\nkeep = ['a', 'b']", []string{"images.keep"}},
		{"empty lists", "[images]\nkeep = []", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			older, newer := goodConfig(t, test.older), goodConfig(t, test.newer)
			if got := newer.Diff(older); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := older.Diff(newer); !slices.Equal(got, test.want) {
				t.Errorf("the other way round: got %q, want %q", got, test.want)
			}
		})
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
		10 * time.Second: "10s", 90 * time.Minute: "1h30m", time.Hour + 30*time.Second: "1h0m30s", 1500 * time.Microsecond: "1.5ms",
		20 * time.Hour: "20h", 100 * time.Minute: "1h40m",
	} {
		if got := policy.ShortDuration(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(policy.ShortDuration(d)); err != nil || back != d {
			t.Errorf("%s reads back as %s, %v", d, back, err)
		}
	}
}
