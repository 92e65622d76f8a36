package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const someMaps = `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/cri guard
Size:                328 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/cri guard
Anonymous:             0 kB
00652000-00655000 rw-p 00052000 08:02 173521      /usr/bin/cri guard
Anonymous:             0 kB
00655000-00656000 r--p 00052000 08:02 173522      /usr/lib/other
Anonymous:             0 kB
00657000-00659000 r--p 00052000 08:02 173521      /usr/bin/cri guard
Anonymous:             4 kB
Swap:                  0 kB
00659000-0065b000 r--p 00052000 08:02 173521      /usr/bin/cri guard
Anonymous:             0 kB
Swap:                  4 kB
7ffd1000-7ffd2000 r-xp 00000000 00:00 0           [vdso]
Anonymous:             0 kB
zz-00655000 r-xp 00000000 08:02 173521      /usr/bin/cri guard
Anonymous:             0 kB
00655000-00400000 r-xp 00000000 08:02 173521      /usr/bin/cri guard
Anonymous:             0 kB
nonsense
`

func TestCleanMaps(t *testing.T) {
	got := cleanMaps(strings.NewReader(someMaps), "/usr/bin/cri guard")
	if want := []addresses{{0x400000, 0x452000}, {0x651000, 0x652000}}; !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func FuzzCleanMaps(f *testing.F) {
	f.Add(someMaps)
	f.Fuzz(func(t *testing.T, maps string) {
		for _, a := range cleanMaps(strings.NewReader(maps), "/usr/bin/cri guard") {
			if a.from >= a.to {
				t.Errorf("%x", a)
			}
		}
	})
}

// Dropping a file keeps the pages that were written, even if the mapping is read-only by now. The loader of a program built with
// -buildmode=pie leaves such mappings.
func TestDropFileKeepsWrittenPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	size := 2 * os.Getpagesize()
	if err := os.WriteFile(path, bytes.Repeat([]byte{'a'}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	b[0] = 'b'
	if err := unix.Mprotect(b, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	dropFile(path)
	if b[0] != 'b' || b[size-1] != 'a' {
		t.Errorf("the mapping holds %q and %q, want b and a", b[0], b[size-1])
	}
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
