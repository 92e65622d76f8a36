package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config/schema"
)

// configTree writes the files of a configuration below a root of their own.
func configTree(t *testing.T, files map[string]string) (Paths, string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Paths{
		File: filepath.Join(root, "etc/config.toml"), Optional: true, Vendor: filepath.Join(root, "usr"),
		DropIns: []string{filepath.Join(root, "etc/d"), filepath.Join(root, "run")},
	}, root
}

func TestDropIns(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // value and origin of images.high
	}{
		{"nothing at all", nil, "85% default"},
		{"the vendor's", map[string]string{"usr/10.toml": "images.high = '81%'"}, "81% usr/10.toml:1"},
		{"the file counts more than the vendor", map[string]string{
			"usr/10.toml": "images.high = '81%'", "etc/config.toml": "[images]\nhigh = '82%'",
		}, "82% etc/config.toml:2"},
		{"a drop-in counts more than the file", map[string]string{
			"etc/config.toml": "[images]\nhigh = '82%'", "etc/d/10.toml": "\n[images]\nhigh = '83%'",
		}, "83% etc/d/10.toml:3"},
		{"of drop-ins the last name counts", map[string]string{
			"run/10.toml": "images.high = '84%'", "etc/d/20.toml": "images.high = '83%'",
		}, "83% etc/d/20.toml:1"},
		{"of one name the last directory", map[string]string{
			"run/10.toml": "images.high = '84%'", "etc/d/10.toml": "images.high = '83%'", "usr/10.toml": "images.high = '81%'",
		}, "84% run/10.toml:1"},
		{"the vendor's is replaced as a whole", map[string]string{
			"usr/10.toml": "images.high = '81%'", "etc/d/10.toml": "images.low = '60%'",
		}, "85% default"},
		{"masked by a link to /dev/null", map[string]string{
			"usr/10.toml": "images.high = '81%'", "etc/d/10.toml": "-> /dev/null",
		}, "85% default"},
		{"masked by a comment", map[string]string{"etc/d/10.toml": "images.high = '83%'", "run/10.toml": "#"}, "85% default"},
		{"in place of a file, /dev/null", map[string]string{"etc/config.toml": "-> /dev/null"}, "85% default"},
		{"what is named otherwise is passed over", map[string]string{
			"etc/d/10.toml.dpkg-old": "images.high = '83%'", "etc/d/README": "hello",
		}, "85% default"},
		{"what is hidden is passed over: a lock of Emacs, a half-written file of Ansible", map[string]string{
			"etc/d/.#10.toml": "-> root@node.1234:1", "etc/d/.ansible_tmpx1y2z310.toml": "[images]\nhig", "etc/d/10.toml": "images.high = '83%'",
		}, "83% etc/d/10.toml:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			paths, root := configTree(t, c.files)
			cfg, err := paths.Load()
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, k := range cfg.Origins() {
				if k.Key == "images.high" {
					got = fmt.Sprint(k.Value) + " " + strings.TrimPrefix(k.Origin.String(), root+"/")
				}
			}
			if got != c.want {
				t.Errorf("images.high = %s, want %s", got, c.want)
			}
		})
	}
}

// Tables merge key by key, rules accumulate, those of later files first, and lists of strings replace earlier ones.
func TestDropInsMerge(t *testing.T) {
	paths, root := configTree(t, map[string]string{
		"usr/10.toml":     "[[protect]]\nnamespace = 'vendor'\n[images]\nkeep = ['a', 'b']\n",
		"etc/config.toml": "[eviction.hard]\n'memory.available' = '5%'\n[[protect]]\nnamespace = 'one'\n[[protect]]\nnamespace = 'two'\n",
		"etc/d/20.toml":   "[eviction.hard]\n'nodefs.available' = '7%'\n[images]\nkeep = ['c']\n[[protect]]\nname = 'three'\n",
	})
	cfg, err := paths.Load()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range cfg.Origins() {
		if k.File != "" {
			got = append(got, fmt.Sprintf("%s = %s # %s", k.Key, inTOML(k.Value), strings.TrimPrefix(k.Origin.String(), root+"/")))
		}
	}
	want := []string{
		`eviction.hard."memory.available" = "5%" # etc/config.toml:2`,
		`eviction.hard."nodefs.available" = "7%" # etc/d/20.toml:2`,
		`images.keep = ["c"] # etc/d/20.toml:4`,
		`protect[1].name = "three" # etc/d/20.toml:6`,
		`protect[2].namespace = "one" # etc/config.toml:4`,
		`protect[3].namespace = "two" # etc/config.toml:6`,
		`protect[4].namespace = "vendor" # usr/10.toml:2`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	again, err := Parse("again", strings.NewReader(cfg.EffectiveWithOrigins()))
	if err != nil || len(again.Diff(cfg)) > 0 {
		t.Errorf("with origins it reads as another: %v, %v", again.Diff(cfg), err)
	}
}

// The first rule that matches applies, so those of later files come first: a drop-in can make an exception.
func TestDropInsRulesOfLaterFilesComeFirst(t *testing.T) {
	rules := func(names ...string) (text string) {
		for _, name := range names {
			text += fmt.Sprintf("[[priority]]\nname = '%[1]s'\nvalue = 1\n[[limit]]\nname = '%[1]s'\nephemeral_storage = '1Gi'\n", name)
		}
		return text
	}
	paths, root := configTree(t, map[string]string{
		"usr/10.toml": rules("vendor"), "etc/config.toml": rules("one", "two"), "etc/d/20.toml": rules("three", "four"), "run/15.toml": rules("five"),
	})
	cfg, err := paths.Load()
	if err != nil {
		t.Fatal(err)
	}
	const want = "three four five one two vendor"
	var priorities, limits, origins []string
	for i := range cfg.Priorities {
		priorities, limits = append(priorities, cfg.Priorities[i].Name), append(limits, cfg.Limits[i].Name)
	}
	if p, l := strings.Join(priorities, " "), strings.Join(limits, " "); p != want || l != want {
		t.Errorf("priorities %s, limits %s, want %s", p, l, want)
	}
	for _, k := range cfg.Origins() {
		if strings.HasPrefix(k.Key, "limit[") && strings.HasSuffix(k.Key, "].name") {
			origins = append(origins, strings.TrimPrefix(k.Origin.String(), root+"/"))
		}
	}
	if got, want := strings.Join(origins, " "), "etc/d/20.toml:5 etc/d/20.toml:11 run/15.toml:5 etc/config.toml:5 etc/config.toml:11 usr/10.toml:5"; got != want {
		t.Errorf("the limits come from %s, want %s", got, want)
	}
	if again, err := Parse("again", strings.NewReader(cfg.EffectiveWithOrigins())); err != nil || len(again.Diff(cfg)) > 0 {
		t.Errorf("printed, it reads as another: %v, %v", again.Diff(cfg), err)
	}
}

// Every mistake in every file is reported with its own file and line.
func TestDropInsMistakes(t *testing.T) {
	paths, root := configTree(t, map[string]string{
		"etc/config.toml": "mode = 'obsrve'\n[[protect]]\nnamespace = 'ok'\n",
		"etc/d/10.toml":   "\n\n[[protect]]\nnamespace = '['\n[images]\nhihg = '80%'\n",
		"run/20.toml":     "[images]\nlow = 5\n",
	})
	_, err := paths.Load()
	var got []string
	for _, e := range mistakesOf(t, err) {
		got = append(got, fmt.Sprintf("%s:%d %s", strings.TrimPrefix(e.File, root+"/"), e.Line, e.Key))
	}
	want := []string{"etc/config.toml:1 mode", "etc/d/10.toml:4 protect[1].namespace", "etc/d/10.toml:6 images.hihg", "run/20.toml:2 images.low"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDropInsBroken(t *testing.T) {
	t.Run("no TOML: mistakes in other files are reported, too", func(t *testing.T) {
		paths, root := configTree(t, map[string]string{"etc/d/10.toml": "mode = \n", "run/20.toml": "nonsense = 1\n"})
		_, err := paths.Load()
		var got []string
		for _, e := range mistakesOf(t, err) {
			got = append(got, strings.TrimPrefix(e.File, root+"/"))
		}
		if strings.Join(got, " ") != "etc/d/10.toml run/20.toml" {
			t.Errorf("%v", err)
		}
	})
	t.Run("a drop-in that cannot be read", func(t *testing.T) {
		paths, _ := configTree(t, map[string]string{"etc/d/10.toml": "-> /not/there"})
		if _, err := paths.Load(); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, schema.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
	t.Run("mistakes elsewhere are reported, too", func(t *testing.T) {
		paths, _ := configTree(t, map[string]string{"etc/d/10.toml": "-> /not/there", "etc/d/20.toml": "nonsense = 1\n"})
		_, err := paths.Load()
		if list := mistakesOf(t, err); len(list) != 2 || list[1].Key != "nonsense" {
			t.Errorf("%v", err)
		}
	})
	for _, name := range []string{"etc/config.toml", "etc/d/10.toml", "usr/20.toml"} {
		t.Run("truncated: "+name, func(t *testing.T) { // without its mode and its rules, the defaults would stop pods
			paths, root := configTree(t, map[string]string{"usr/10.toml": "images.high = '81%'", name: ""})
			cfg, err := paths.Load()
			if e := mistakesOf(t, err)[0]; e.File != filepath.Join(root, name) || e.Rule != "must not be empty" {
				t.Errorf("mode %s, %v", cfg.Mode, err)
			}
		})
	}
	t.Run("a directory that is none", func(t *testing.T) {
		paths, _ := configTree(t, map[string]string{"etc/d": "a file"})
		if _, err := paths.Load(); !errors.Is(err, schema.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
	for _, name := range []string{"etc/config.toml", "etc/d", "usr"} {
		t.Run("a link to nothing in place of "+name, func(t *testing.T) { // such as to a disk that is not mounted yet
			paths, root := configTree(t, map[string]string{name: "-> /not/there", "run/20.toml": "[images]\nlow = '60%'\n"})
			if cfg, err := paths.Load(); !errors.Is(err, fs.ErrNotExist) || mistakesOf(t, err)[0].File != filepath.Join(root, name) {
				t.Errorf("mode %s, %v", cfg.Mode, err)
			}
		})
	}
	t.Run("a link to nothing in place of the directory", func(t *testing.T) {
		paths, root := configTree(t, map[string]string{"etc": "-> /not/there"})
		if cfg, err := paths.Load(); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(mistakesOf(t, err)[0].File, filepath.Join(root, "etc")) {
			t.Errorf("mode %s, %v", cfg.Mode, err)
		}
	})
	t.Run("a directory that was named and is not there", func(t *testing.T) {
		if _, err := Load("", "/not/there"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a file that was named and is not there", func(t *testing.T) {
		if _, err := Load("/not/there.toml", t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}

// The check notes files that are not read by mistake, and those through which every user could have root run a hook.
func TestDropInsNotes(t *testing.T) {
	paths, root := configTree(t, map[string]string{
		"etc/config.toml": "#", "etc/d/10-site.conf": "#", "run/20.TOML": "", "usr/README": "", "etc/d/30.toml.dpkg-old": "", "etc/d/.40.conf": "",
		"etc/d/50.toml": "#", "run/60.toml": "-> /dev/null",
	})
	if err := os.Chmod(filepath.Join(root, "etc/d/50.toml"), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg, err := paths.Load()
	if err != nil {
		t.Fatal(err)
	}
	const misnamed = " is not read: the name of a drop-in ends in .toml"
	want := []string{root + "/etc/d/10-site.conf" + misnamed, root + "/run/20.TOML" + misnamed, root + "/etc/d/50.toml can be changed by every user, and the service runs as root"}
	if got := cfg.Notes(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Rules in a list of inline tables count like other rules.
func TestDropInsOfInlineRules(t *testing.T) {
	paths, root := configTree(t, map[string]string{
		"etc/d/10.toml": "\n[[protect]]\nname = '['\n",
		"etc/d/20.toml": "protect = [{name = 'a'}, {name = 'b'}]\n",
	})
	_, err := paths.Load()
	if e := mistakesOf(t, err)[0]; e.Key != "protect[3].name" || e.File != filepath.Join(root, "etc/d/10.toml") || e.Line != 3 {
		t.Errorf("%v", err)
	}
}

// A table inside an inline value has no line of its own.
func TestOriginsOfInlineTables(t *testing.T) {
	cfg := goodConfig(t, "\nbudget = {hard = {burst = 9}}\n")
	origins := map[string]string{}
	for _, k := range cfg.Origins() {
		origins[k.Key] = k.Origin.String()
	}
	if origins["budget.hard.burst"] != "test.toml:2" || origins["budget.soft.burst"] != "default" || origins["budget.per_hour"] != "default" {
		t.Errorf("%v", origins)
	}
}
