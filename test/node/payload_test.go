package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/criguard/criguard/test/node/scenario"
)

// The payload disk has every unit of this tree, and the files for the users and directories that the units need.
func TestInstalled(t *testing.T) {
	for _, pattern := range []string{"*.service", "*.socket", "*.sysusers", "*.tmpfiles"} {
		files, err := filepath.Glob(filepath.Join("../../systemd", pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			if name := filepath.Base(file); installed["systemd/"+name] != name {
				t.Errorf("the payload lacks %s", name)
			}
		}
	}
}

// A part of the payload is there if one of the scenarios needs it.
func TestExtrasOf(t *testing.T) {
	none := trialsOf(scenario.All(), func(name string) bool { return name == "leak-fast/v2" })
	if got := extrasOf(none); len(none) != 1 || got != (extras{}) {
		t.Errorf("%+v for %d trials", got, len(none))
	}
	for name, want := range map[string]extras{
		"fleet-units/v2":   {etcd: true},
		"package/v2":       {debs: true},
		"kube-pod/v2-kube": {image: true, kubernetes: true},
	} {
		some := trialsOf(scenario.All(), func(s string) bool { return s == name })
		if got := extrasOf(slices.Concat(none, some)); len(some) != 1 || got != want {
			t.Errorf("%s: %+v of %d trials, want %+v", name, got, len(some), want)
		}
	}
}
