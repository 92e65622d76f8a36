package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestLayoutShares(t *testing.T) {
	for layout, groups := range map[Layout][]string{
		SingleFS: {
			"nodefs.available imagefs.available containerfs.available",
			"nodefs.inodesFree imagefs.inodesFree containerfs.inodesFree",
		},
		DedicatedImageFS: {"imagefs.available containerfs.available", "imagefs.inodesFree containerfs.inodesFree"},
		SplitFS:          {"nodefs.available containerfs.available", "nodefs.inodesFree containerfs.inodesFree"},
	} {
		for _, a := range Signals() {
			want := []string{a.String()}
			for _, g := range groups {
				if names := strings.Fields(g); slices.Contains(names, a.String()) {
					want = names
				}
			}
			var got []string
			for _, b := range Signals() {
				if layout.Shares(a, b) {
					got = append(got, b.String())
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s shares with %v, want %v", layout, a, got, want)
			}
		}
	}
}
