package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/criguard/criguard/test/need"
)

func TestMemoryReclaim(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"cgroup.controllers": "memory\n", "a/memory.reclaim": "", "old/cgroup.procs": ""})
	l, err := Detect(Root(root), "/proc")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.MemoryReclaim("/a", 1<<20); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "a/memory.reclaim")); string(b) != "1048576" || err != nil {
		t.Errorf("wrote %q, %v", b, err)
	}
	for _, bytes := range []int64{0, -1} {
		if err := l.MemoryReclaim("/old", bytes); err != nil {
			t.Errorf("%d bytes are nothing to ask for: %v", bytes, err)
		}
	}
	if err := l.MemoryReclaim("/old", 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("below linux 5.19: %v, want ErrUnsupported", err)
	}
	if err := l.MemoryReclaim("/gone", 1); !errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
		t.Errorf("a removed cgroup: %v, want ErrGone", err)
	}
	for _, rel := range []string{"", "/", "/a/../.."} {
		if err := l.MemoryReclaim(rel, 1); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("MemoryReclaim(%q): %v, want a refusal", rel, err)
		}
	}
	if err := testTree(t, "5.10-v1-cgroupfs").MemoryReclaim("/kubepods", 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("v1: %v, want ErrUnsupported", err)
	}
}

func TestMemoryLimit(t *testing.T) {
	for tree, limits := range map[string]map[string]int64{
		"6.1-v2-systemd": {
			"/kubepods.slice": 3865470566, "/gone": -1,
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1c4c8e_2d5c_4f0a_9a6e_0b7f3f1d2c11.slice": -1,
		},
		"6.18-hybrid-cgroupfs": {"/kubepods": 20971520000, "/": -1, "/gone": -1},
	} {
		for rel, want := range limits {
			if n, ok := testTree(t, tree).MemoryLimit(rel); ok != (want >= 0) || ok && n != want {
				t.Errorf("%s%s: %d, %t; want %d", tree, rel, n, ok, want)
			}
		}
	}
}

func TestMemoryMin(t *testing.T) {
	l := testTree(t, "6.1-v2-systemd")
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1c4c8e_2d5c_4f0a_9a6e_0b7f3f1d2c11.slice"
	for rel, want := range map[string]int64{pod: 256 << 20, "/kubepods.slice": 0} {
		if n, ok := l.MemoryMin(rel); n != want || !ok {
			t.Errorf("%s: %d, %t; want %d", rel, n, ok, want)
		}
	}
	if n, ok := l.MemoryMin("/gone"); ok {
		t.Errorf("gone: %d", n)
	}
	if n, ok := testTree(t, "6.18-hybrid-cgroupfs").MemoryMin("/kubepods"); ok {
		t.Errorf("v1: %d", n)
	}
}

func TestBootTime(t *testing.T) {
	first := BootTime()
	if second := BootTime(); first <= 0 || second < first {
		t.Errorf("%s and then %s", first, second)
	}
	if n := testing.AllocsPerRun(10, func() { BootTime() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBootID(t *testing.T) {
	if id, err := BootID("testdata/6.1-v2-systemd/proc"); id != "0d6f6a52-0d6c-4a5d-8f5e-6d7c4b1a9e21" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
	if _, err := BootID(Proc(t.TempDir())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	empty := t.TempDir()
	write(t, empty, map[string]string{"sys/kernel/random/boot_id": "\n"})
	if id, err := BootID(Proc(empty)); err == nil {
		t.Errorf("an empty file gave %q", id)
	}
}

func TestLockMemory(t *testing.T) {
	need.Root(t)
	if !isolated(t) {
		return
	}
	if err := LockMemory(); err != nil {
		t.Fatal(err)
	}
	status := func(key string) int64 {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		return statusKey(b, key)
	}
	locked, resident := status("VmLck:"), status("VmRSS:")
	if locked <= 0 || resident <= 0 || resident > 64<<10 {
		t.Errorf("%d kB locked, %d kB resident: want all locked, and only what is used resident", locked, resident)
	}
	// A second call gives back the pages of the program that were used since the first one.
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	sum, size := byte(0), int64(0)
	for _, r := range cleanMaps(maps, exe) {
		program := unsafe.Slice((*byte)(unsafe.Add(nil, r.from)), r.to-r.from)
		for i := 0; i < len(program); i += os.Getpagesize() {
			sum += program[i]
		}
		size += int64(len(program)) >> 10
	}
	before := status("RssFile:")
	if err := LockMemory(); err != nil {
		t.Fatal(err)
	}
	if after := status("RssFile:"); before < size || after > before-size/4 || status("VmLck:") <= 0 {
		t.Errorf("%d kB of files resident, then %d of a program of %d (%d)", before, after, size, sum)
	}
}

// statusKey parses a line "Key:   123 kB".
func statusKey(b []byte, key string) int64 {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if len(line) > len(key) && string(line[:len(key)]) == key {
			for i := len(key); i < len(line); i++ {
				if line[i] != ' ' && line[i] != '\t' {
					return parseNumber(line[i:])
				}
			}
		}
	}
	return -1
}
