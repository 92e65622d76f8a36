package cgroup

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const someMaps = `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/cri guard
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/cri guard
00652000-00655000 rw-p 00052000 08:02 173521      /usr/bin/cri guard
00655000-00656000 r--p 00052000 08:02 173522      /usr/lib/other
7ffd1000-7ffd2000 r-xp 00000000 00:00 0           [vdso]
zz-00655000 r-xp 00000000 08:02 173521      /usr/bin/cri guard
00655000-00400000 r-xp 00000000 08:02 173521      /usr/bin/cri guard
nonsense
`

func TestReadOnlyMaps(t *testing.T) {
	got := readOnlyMaps(strings.NewReader(someMaps), "/usr/bin/cri guard")
	if want := []addresses{{0x400000, 0x452000}, {0x651000, 0x652000}}; !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func FuzzReadOnlyMaps(f *testing.F) {
	f.Add(someMaps)
	f.Fuzz(func(t *testing.T, maps string) {
		for _, a := range readOnlyMaps(strings.NewReader(maps), "/usr/bin/cri guard") {
			if a.from >= a.to {
				t.Errorf("%x", a)
			}
		}
	})
}

// The program's mappings are found, and most of what its start has used is gone afterwards.
func TestDropProgram(t *testing.T) {
	shared := func() (pages int) {
		t.Helper()
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(b))
		for _, c := range fields[2] {
			pages = 10*pages + int(c-'0')
		}
		return pages
	}
	before := shared()
	dropProgram()
	if after := shared(); after >= before {
		t.Errorf("%d shared pages before, %d after", before, after)
	}
}
