package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config/schema"
)

// Any input either yields an error or a configuration that survives a round trip.
func FuzzParseConfig(f *testing.F) {
	files, err := filepath.Glob("testdata/config/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		// Split the seeds by table: the fuzzer mutates and minimizes small inputs faster.
		for table := range strings.SplitSeq(string(text), "\n\n") {
			f.Add(table)
		}
	}
	for _, text := range []string{
		"", "\ufeff", "\x00", "[", "[[", "]", "=", "a", "a=", "'", "\"\"\"", "'''\n", "\"\\", "#", ".", "a.b.", "[a", "[[a]", "[[a]]\n[a.b]",
		"mode=1", "images.high=85", "eviction.hard={'a'=1}", "[[priority]]\n[priority.labels]\n''=''", "protect=[{}]", "protect=[1,{}]",
		"budget={hard={burst=9e9}}", "a=1979-05-27T07:32:00Z", "a=[inf,nan]", strings.Repeat("[", 100), strings.Repeat("{a=", 100),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := Parse("fuzz", strings.NewReader(text))
		if err != nil {
			checkMistakes(t, text, err)
			return
		}
		again, err := Parse("fuzz", strings.NewReader(cfg.Effective()))
		if err != nil {
			t.Fatalf("rendered:\n%s\n%v", cfg.Effective(), err)
		}
		if !reflect.DeepEqual(withoutFile(again), withoutFile(cfg)) {
			t.Fatalf("read %+v\nand again %+v", cfg, again)
		}
		for _, d := range cfg.Diff(Default()) {
			if d == "" {
				t.Fatal("a difference without a name")
			}
		}
		if again, err := Parse("fuzz", strings.NewReader(cfg.EffectiveWithOrigins())); err != nil || len(again.Diff(cfg)) > 0 {
			t.Fatalf("with origins: %v\n%s", err, cfg.EffectiveWithOrigins())
		}
		cfg.Notes()
	})
}

func checkMistakes(t *testing.T, text string, err error) {
	list := mistakesOf(t, err)
	if len(list) == 0 || len(list) > maxMistakes+1 {
		t.Fatalf("%d mistakes", len(list))
	}
	lines := 1 + strings.Count(text, "\n")
	for _, e := range list {
		if e.File != "fuzz" || e.Rule == "" || e.Line < 0 || e.Line > lines+1 {
			t.Fatalf("in %d lines: %#v", lines, e)
		}
		if !errors.Is(e, schema.ErrInvalid) || len(e.Value) > 8*maxShown {
			t.Fatalf("%#v", e)
		}
	}
}
