package cgroup

import (
	"path/filepath"
	"runtime"
	"testing"
)

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{
		"0\n": 1, "0-3\n": 4, "0-1,4-63\n": 62, "0,2,4": 3, "": 0, "\n": 0, "0-": 0, "-1": 0, "3-1": 0, "a": 0, "0-99999999": 0, "0-18446744073709551615": 0,
	} {
		if n, err := countCPUs(list); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", list, n, err, want)
		}
	}
}

// The machine's CPUs count, also those that the process may not use.
func TestOnlineCPUs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"fs/cgroup/cgroup.controllers": "memory pids\n", "devices/system/cpu/online": "0-63\n"})
	l, err := Detect(Root(filepath.Join(dir, "fs/cgroup")), Proc(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.OnlineCPUs(); n != 64 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := realV1(t).OnlineCPUs(); n < runtime.NumCPU() || err != nil {
		t.Errorf("this machine has %d, %v; this process may use %d", n, err, runtime.NumCPU())
	}
}

func FuzzCountCPUs(f *testing.F) {
	f.Add("0-1,4-63\n")
	f.Fuzz(func(t *testing.T, list string) {
		if n, err := countCPUs(list); n < 0 || n > 2*maxCPU || (err == nil) != (n > 0) {
			t.Errorf("%q: %d, %v", list, n, err)
		}
	})
}
