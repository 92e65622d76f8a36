package main

import (
	"testing"
	"time"
)

func TestPackageVersion(t *testing.T) {
	commit := time.Date(2026, 11, 21, 12, 19, 6, 0, time.FixedZone("", 3600))
	for described, want := range map[string]string{
		"v1.2.3":                       "1.2.3",
		"1.2.3":                        "1.2.3",
		"v1.2.3-dirty":                 "1.2.3+dirty",
		"v1.2.3-rc.1":                  "1.2.3~rc.1",
		"v1.2.3-4-gabcdef012345":       "1.2.3+git4.abcdef012345",
		"v1.2.3-4-gabcdef012345-dirty": "1.2.3+git4.abcdef012345+dirty",
		"v1.2.3-rc.1-4-gabcdef012345":  "1.2.3~rc.1+git4.abcdef012345",
		"f631e4612345":                 "0.0.0~git20261121111906.f631e4612345",
		"f631e4612345-dirty":           "0.0.0~git20261121111906.f631e4612345+dirty",
		"devel":                        "0.0.0~devel",
		"my build_1":                   "0.0.0~my.build.1",
	} {
		if got := packageVersion(described, commit); got != want {
			t.Errorf("%s: %s, want %s", described, got, want)
		}
	}
}

func TestFindArch(t *testing.T) {
	for _, a := range arches {
		if got, err := findArch(a.name); err != nil || got != a {
			t.Errorf("%s: %v, %v", a.name, got, err)
		}
	}
	if _, err := findArch("sparc"); err == nil {
		t.Error("sparc is known")
	}
}
