package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/need"
)

func openNode(t testing.TB, l Layout, pods string) *Node {
	t.Helper()
	n, err := OpenNode(l, pods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// rootMemory reads the root's memory as the guard does.
func rootMemory(n *Node) (Memory, error) {
	info, err := n.MemInfo()
	if err != nil {
		return Memory{}, err
	}
	return n.Memory(info, 0)
}

func TestNodeReadsCapturedTrees(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		pods             string
		root, podsMemory Memory
		pids             Pids
		memory, io       Stall
		noPSI            bool
	}{
		"6.18-hybrid-cgroupfs": {
			pods: "/kubepods", podsMemory: Memory{700 * mib, 100 * mib, 100 * mib, 20000 * mib, 0},
			// 900 of 4096 is a larger share than a few hundred of 32768.
			pids: Pids{900, 4096, true}, root: Memory{Limit: -1},
		},
		"6.1-v2-systemd": {
			pods: "/kubepods.slice", podsMemory: Memory{700 * mib, 100 * mib, 100 * mib, 3865470566, 0},
			root: Memory{(4028416 - 512000) << 10, 1024 * mib, 0, -1, 0}, pids: Pids{412, 31263, false},
			memory: Stall{9123456 * time.Microsecond, 7000001 * time.Microsecond}, io: Stall{12 * time.Microsecond, 11 * time.Microsecond},
		},
		"5.10-v1-cgroupfs": {
			pods: "/kubepods", podsMemory: Memory{256 * mib, 64 * mib, 0, -1, 0},
			root: Memory{1536 * mib, 512 * mib, 0, -1, 0}, pids: Pids{131, 15700, false}, noPSI: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := openNode(t, testTree(t, name), c.pods)
			root, err := rootMemory(n)
			if err != nil || root.Limit != -1 || root.WorkingSet() <= 0 {
				t.Errorf("root memory %+v, %v", root, err)
			}
			if c.root.Usage != 0 && root != c.root {
				t.Errorf("root memory %+v, want %+v", root, c.root)
			}
			if got, err := n.PodsMemory(); got != c.podsMemory || err != nil {
				t.Errorf("pods memory %+v, %v; want %+v", got, err, c.podsMemory)
			}
			if got, err := n.Pids(); got != c.pids || err != nil {
				t.Errorf("tasks %+v, %v; want %+v", got, err, c.pids)
			}
			memory, err := n.MemoryStall()
			if c.noPSI {
				if !errors.Is(err, ErrUnsupported) {
					t.Errorf("without PSI: %v, want ErrUnsupported", err)
				}
				return
			}
			io, ioErr := n.IOStall()
			if err != nil || ioErr != nil || memory.Full < 0 || io.Full < 0 {
				t.Errorf("stalls %+v, %v, %+v, %v", memory, err, io, ioErr)
			}
			if c.memory.Full != 0 && (memory != c.memory || io != c.io) {
				t.Errorf("stalls %+v and %+v, want %+v and %+v", memory, io, c.memory, c.io)
			}
		})
	}
}

func TestNodeWithoutThings(t *testing.T) {
	files := func() map[string]string {
		return map[string]string{
			"cgroup/memory/cgroup.procs": "", "cgroup/memory/memory.usage_in_bytes": "4096\n",
			"proc/meminfo":                  "MemTotal: 8 kB\nMemFree: 4 kB\nInactive(file): 1 kB\n",
			"proc/loadavg":                  "0 0 0 1/10 7\n",
			"proc/sys/kernel/pid_max":       "100\n",
			"proc/sys/kernel/threads-max":   "200\n",
			"cgroup/memory/p/cgroup.procs":  "",
			"cgroup/memory/p/memory.stat":   "total_inactive_file 9999\n",
			"cgroup/pids/cgroup.procs":      "",
			"cgroup/pids/p/pids.max":        "5\n",
			"cgroup/pids/p/pids.current":    "4\n",
			"cgroup/freezer/cgroup.procs":   "",
			"proc/pressure/memory":          "some total=1\n",
			"cgroup/freezer/p/cgroup.procs": "",
		}
	}
	open := func(t *testing.T, change func(map[string]string)) *Node {
		t.Helper()
		dir, f := t.TempDir(), files()
		change(f)
		write(t, dir, f)
		l, err := Detect(Root(filepath.Join(dir, "cgroup")), Proc(filepath.Join(dir, "proc")))
		if err != nil {
			t.Fatal(err)
		}
		return openNode(t, l, "/p")
	}
	t.Run("everything there", func(t *testing.T) {
		n := open(t, func(map[string]string) {})
		if m, err := rootMemory(n); m != (Memory{4096, 1024, 0, -1, 0}) || err != nil {
			t.Errorf("memory %+v, %v", m, err)
		}
		if p, err := n.Pids(); p != (Pids{4, 5, true}) || err != nil {
			t.Errorf("tasks %+v, %v", p, err)
		}
	})
	t.Run("what is in no cgroup", func(t *testing.T) { // huge pages, zram, drivers
		meminfo := "MemTotal: 64 kB\nMemFree: 4 kB\nInactive(file): 1 kB\n"
		for name, c := range map[string]struct {
			file string
			want Memory
		}{
			"v1, where the root's counter leaves them out": {"", Memory{60 << 10, 1024, 0, -1, 56 << 10}},
			"v2, of all that is not free":                  {"cgroup/cgroup.controllers", Memory{60 << 10, 1024, 0, -1, 0}},
		} {
			n := open(t, func(f map[string]string) {
				f["proc/meminfo"] = meminfo
				if c.file != "" {
					f[c.file] = "memory\n"
				}
			})
			if m, err := rootMemory(n); m != c.want || err != nil {
				t.Errorf("%s: memory %+v, %v; want %+v", name, m, err, c.want)
			}
		}
	})
	t.Run("free pages on the processors' lists", func(t *testing.T) {
		for version, controllers := range map[string]string{"v1": "", "v2": "cgroup/cgroup.controllers"} {
			n := open(t, func(f map[string]string) {
				size := int64(os.Getpagesize() >> 10)
				f["proc/meminfo"] = fmt.Sprintf("MemTotal: %d kB\nMemFree: 0 kB\nInactive(file): 0 kB\n", 64*size)
				f["proc/zoneinfo"] = "Node 0, zone   Normal\n  pagesets\n    cpu: 0\n              count:    4\n    cpu: 1\n              count:    8\n"
				if controllers != "" {
					f[controllers] = "memory\n"
				}
			})
			if m, err := rootMemory(n); m.Usage != int64(52*os.Getpagesize()) || err != nil {
				t.Errorf("%s: memory %+v, %v; want 52 pages used of 64", version, m, err)
			}
		}
	})
	t.Run("free pages that the kernel keeps back", func(t *testing.T) {
		n := open(t, func(f map[string]string) {
			size := int64(os.Getpagesize() >> 10)
			f["proc/meminfo"] = fmt.Sprintf("MemTotal: %d kB\nMemFree: %d kB\nInactive(file): 0 kB\n", 64*size, 20*size)
			f["proc/zoneinfo"] = "Node 0, zone   Normal\n  pages free     20\n        min      3\n        protection: (0, 4)\n  pagesets\n    cpu: 0\n              count:    2\n"
			f["cgroup/cgroup.controllers"] = "memory\n"
		})
		if m, err := rootMemory(n); m.Usage != int64(49*os.Getpagesize()) || err != nil {
			t.Errorf("memory %+v, %v; want 49 pages used of 64", m, err)
		}
	})
	t.Run("zones of a larger machine", func(t *testing.T) {
		for managed, want := range map[int64]int64{64: 43, 67: 43, 69: 44} {
			n := open(t, func(f map[string]string) {
				size := int64(os.Getpagesize() >> 10)
				f["proc/meminfo"] = fmt.Sprintf("MemTotal: %d kB\nMemFree: %d kB\nInactive(file): 0 kB\n", 64*size, 20*size)
				f["proc/zoneinfo"] = fmt.Sprintf("Node 0, zone   Normal\n  pages free     20\n        min      1\n        managed  %d\n"+
					"        protection: (0, 0)\n  pagesets\n    cpu: 0\n              count:    2\n", managed)
				f["cgroup/cgroup.controllers"] = "memory\n"
			})
			if m, err := rootMemory(n); m.Usage != want*int64(os.Getpagesize()) || err != nil {
				t.Errorf("%d pages managed: memory %+v, %v; want %d pages used of 64", managed, m, err, want)
			}
		}
	})
	t.Run("free pages on the processors' lists of a moment ago", func(t *testing.T) {
		var zoneinfo string
		n := open(t, func(f map[string]string) {
			size := int64(os.Getpagesize() >> 10)
			f["proc/meminfo"] = fmt.Sprintf("MemTotal: %d kB\nMemFree: 0 kB\nInactive(file): 0 kB\n", 64*size)
			f["proc/zoneinfo"], f["cgroup/cgroup.controllers"] = "", "memory\n"
		})
		zoneinfo = n.zoneinfo.path
		info, err := n.MemInfo()
		if err != nil {
			t.Fatal(err)
		}
		page := int64(os.Getpagesize())
		for i, c := range []struct {
			lists, enough int64 // pages
			later         time.Duration
			want          int64 // pages used
		}{
			{12, 10, 0, 52}, {20, 10, 0, 52}, {20, 10, zonesFor, 44}, {30, 20, 0, 34}, {31, 10, 0, 34}, {31, 0, 0, 33}, {0, 30, 0, 33}, {0, 31, 0, 64},
		} {
			text := fmt.Sprintf("Node 0, zone   Normal\n  pagesets\n    cpu: 0\n              count:    %d\n", c.lists)
			if err := os.WriteFile(zoneinfo, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n.zonesAt = time.Now().Add(-c.later)
			if m, err := n.Memory(info, c.enough*page); m.Usage != c.want*page || err != nil {
				t.Errorf("%d: %d pages used, %v; want %d", i, m.Usage/page, err, c.want)
			}
		}
	})
	t.Run("what the kernel gives back", func(t *testing.T) {
		for meminfo, want := range map[string]int64{
			"KReclaimable: 30 kB\nSlab: 32 kB\nSReclaimable: 24 kB\n": 38,
			"Slab: 32 kB\nSReclaimable: 24 kB\n":                      44, // before linux 4.20
			"KReclaimable: 8 kB\n":                                    60, // programs may use as much
			"KReclaimable: 69 kB\n":                                   0,
		} {
			n := open(t, func(f map[string]string) {
				f["cgroup/cgroup.controllers"] = "memory\n"
				f["proc/meminfo"] = "MemTotal: 64 kB\nMemFree: 4 kB\nInactive(file): 6 kB\n" + meminfo
			})
			if m, err := rootMemory(n); m != (Memory{want << 10, 6 << 10, 0, -1, 0}) || err != nil {
				t.Errorf("%q: memory %+v, %v; want %d KiB used", meminfo, m, err, want)
			}
		}
	})
	t.Run("no MemAvailable", func(t *testing.T) {
		n := open(t, func(map[string]string) {})
		m, err := n.MemInfo()
		if m.Available != -1 || m.Total != 8<<10 || err != nil {
			t.Errorf("meminfo %+v, %v", m, err)
		}
		if once, err := ReadMemInfo(n.layout); once != m || err != nil {
			t.Errorf("read once: %+v, %v; want %+v", once, err, m)
		}
	})
	t.Run("no MemTotal", func(t *testing.T) {
		n := open(t, func(f map[string]string) { f["proc/meminfo"] = "MemFree: 4 kB\n" })
		if m, err := n.MemInfo(); err == nil {
			t.Errorf("meminfo %+v", m)
		}
	})
	t.Run("no inactive pages told", func(t *testing.T) {
		n := open(t, func(f map[string]string) { f["proc/meminfo"] = "MemTotal: 8 kB\nMemFree: 4 kB\n" })
		if m, err := rootMemory(n); err == nil {
			t.Errorf("memory %+v: page cache would pass for used memory", m)
		}
	})
	t.Run("usage is no number", func(t *testing.T) {
		n := open(t, func(f map[string]string) { f["cgroup/memory/memory.usage_in_bytes"] = "x\n" })
		if m, err := rootMemory(n); err == nil {
			t.Errorf("memory %+v", m)
		}
	})
	t.Run("no memory controller", func(t *testing.T) {
		n := open(t, func(f map[string]string) {
			for name := range f {
				if strings.HasPrefix(name, "cgroup/memory/") {
					delete(f, name)
				}
			}
		})
		if _, err := rootMemory(n); !errors.Is(err, ErrUnsupported) {
			t.Errorf("memory: %v, want ErrUnsupported", err)
		}
		if _, err := n.PodsMemory(); !errors.Is(err, ErrGone) {
			t.Errorf("pods memory: %v, want ErrGone", err)
		}
		if _, err := n.MemInfo(); err != nil {
			t.Errorf("meminfo: %v", err)
		}
	})
	t.Run("in a container", func(t *testing.T) {
		n := open(t, func(f map[string]string) {
			f["cgroup/pids/pids.max"], f["cgroup/pids/pids.current"] = "20\n", "17\n"
			f["cgroup/memory/memory.limit_in_bytes"] = "4096\n"
		})
		if p, err := n.Pids(); p != (Pids{17, 20, false}) || err != nil {
			t.Errorf("tasks %+v, %v; want the container's", p, err)
		}
		if limit, ok := n.layout.RootLimit(); limit != 4096 || !ok {
			t.Errorf("memory limit %d, %t", limit, ok)
		}
	})
	t.Run("no limit of the container's memory", func(t *testing.T) {
		for _, limit := range []string{"max\n", "9223372036854771712\n", "8192\n", ""} { // 8192 is all memory
			n := open(t, func(f map[string]string) {
				if limit != "" {
					f["cgroup/memory/memory.limit_in_bytes"] = limit
				}
			})
			if got, ok := n.layout.RootLimit(); ok {
				t.Errorf("%q: %d", limit, got)
			}
		}
	})
	t.Run("no limit of the pods'", func(t *testing.T) {
		n := open(t, func(f map[string]string) { f["cgroup/pids/p/pids.max"] = "max\n" })
		if p, err := n.Pids(); p != (Pids{10, 100, false}) || err != nil {
			t.Errorf("tasks %+v, %v; want the node's", p, err)
		}
	})
	t.Run("no pids controller", func(t *testing.T) {
		n := open(t, func(f map[string]string) {
			delete(f, "cgroup/pids/p/pids.max")
			delete(f, "proc/sys/kernel/pid_max")
		})
		if p, err := n.Pids(); p != (Pids{10, 200, false}) || err != nil {
			t.Errorf("tasks %+v, %v; want the node's", p, err)
		}
	})
	t.Run("no limits at all", func(t *testing.T) {
		n := open(t, func(f map[string]string) {
			delete(f, "proc/sys/kernel/pid_max")
			delete(f, "proc/sys/kernel/threads-max")
		})
		if _, err := n.Pids(); !errors.Is(err, ErrUnsupported) {
			t.Errorf("tasks: %v, want ErrUnsupported", err)
		}
	})
	t.Run("odd limits", func(t *testing.T) {
		n := open(t, func(f map[string]string) {
			f["proc/sys/kernel/pid_max"], f["proc/sys/kernel/threads-max"] = "x\n", "0\n"
		})
		if p, err := n.Pids(); err == nil {
			t.Errorf("tasks %+v", p)
		}
	})
	t.Run("odd loadavg", func(t *testing.T) {
		n := open(t, func(f map[string]string) { f["proc/loadavg"] = "0 0 0\n" })
		if p, err := n.Pids(); err == nil {
			t.Errorf("tasks %+v", p)
		}
	})
	t.Run("no full stalls", func(t *testing.T) {
		n := open(t, func(map[string]string) {})
		if s, err := n.MemoryStall(); err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("stall %+v, %v; want an error of reading", s, err)
		}
		if _, err := n.IOStall(); !errors.Is(err, ErrUnsupported) {
			t.Errorf("stall: %v, want ErrUnsupported", err)
		}
	})
	t.Run("no pods cgroup", func(t *testing.T) {
		n := open(t, func(map[string]string) {})
		n.SetPods("")
		if _, err := n.PodsMemory(); !errors.Is(err, ErrGone) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("pods memory: %v, want ErrGone", err)
		}
		if p, err := n.Pids(); p != (Pids{10, 100, false}) || err != nil {
			t.Errorf("tasks %+v, %v; want the node's", p, err)
		}
	})
	t.Run("no meminfo", func(t *testing.T) {
		l := testTree(t, "6.1-v2-systemd")
		l.proc = Proc(t.TempDir())
		if _, err := OpenNode(l, ""); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := ReadMemInfo(l); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

func TestPidsTighter(t *testing.T) {
	for name, c := range map[string]struct{ node, pods, want Pids }{
		"no limit of the pods'": {Pids{100, 1000, false}, Pids{50, -1, true}, Pids{100, 1000, false}},
		"nothing known":         {Pids{100, 1000, false}, Pids{}, Pids{100, 1000, false}},
		"the node's is nearer":  {Pids{950, 1000, false}, Pids{50, 100, true}, Pids{950, 1000, false}},
		"the pods' is nearer":   {Pids{100, 1000, false}, Pids{95, 100, true}, Pids{95, 100, true}},
		"the same part":         {Pids{500, 1000, false}, Pids{50, 100, true}, Pids{500, 1000, false}},
		"many tasks of the host's are not the pods'": {
			// min(limits) − all tasks would leave nothing here, and a pod would be stopped for it.
			Pids{900, 32768, false}, Pids{50, 900, true}, Pids{50, 900, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.node.tighter(c.pods); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// At its limit, the kernel frees most dentries and inodes of the pods before it kills, as it does for the node.
func TestPodsMemoryWithoutSlab(t *testing.T) {
	for limit, want := range map[string]int64{"8000": 8000 - 50 - (4000 - 1000), "40000": 8000 - 50, "max": 8000 - 50} {
		dir := t.TempDir()
		write(t, dir, map[string]string{
			"cgroup/cgroup.controllers": "memory\n", "cgroup/pods/memory.current": "8000\n", "cgroup/pods/memory.max": limit + "\n",
			"cgroup/pods/memory.stat": "inactive_file 50\nslab_reclaimable 4000\n", "proc/meminfo": "MemTotal: 100 kB\n",
		})
		l, err := Detect(Root(filepath.Join(dir, "cgroup")), Proc(filepath.Join(dir, "proc")))
		if err != nil {
			t.Fatal(err)
		}
		if m, err := openNode(t, l, "/pods").PodsMemory(); err != nil || m.WorkingSet() != want {
			t.Errorf("limit %s: %d, %v, want %d", limit, m.WorkingSet(), err, want)
		}
	}
}

// An open Node follows a pods cgroup that appears, disappears and appears again.
func TestNodeFollowsThePodsCgroup(t *testing.T) {
	l := realV1(t)
	rel := ownCgroup(t, l, "pids")
	n := openNode(t, l, rel)
	first, err := n.PodsMemory()
	if err != nil || first.Limit != -1 {
		t.Fatal(first, err)
	}
	before, err := n.Pids()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{l.Dir("memory", rel), l.Dir("pids", rel)} {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.PodsMemory(); !errors.Is(err, ErrGone) {
		t.Errorf("removed: %v, want ErrGone", err)
	}
	if p, err := n.Pids(); err != nil || p.Max != before.Max {
		t.Errorf("removed: tasks %+v, %v; want the node's", p, err)
	}
	for _, dir := range []string{l.Dir("memory", rel), l.Dir("pids", rel)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(l.Dir("memory", rel)+"/memory.limit_in_bytes", []byte("67108864"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.Dir("pids", rel)+"/pids.max", []byte("2"), 0); err != nil { // nearer than a busy node's limit
		t.Fatal(err)
	}
	startIn(t, "sleep", l.Dir("pids", rel))
	if m, err := n.PodsMemory(); err != nil || m.Limit != 64<<20 {
		t.Errorf("made anew: %+v, %v; want its own limit", m, err)
	}
	if p, err := n.Pids(); err != nil || p.Max != 2 || p.Current < 1 {
		t.Errorf("made anew: tasks %+v, %v; want the pods'", p, err)
	}
}

func TestReadAgainFollowsAFileMadeAnew(t *testing.T) {
	l := realV1(t)
	rel := ownCgroup(t, l)
	f, err := openFile(l.dir(rel) + "/memory.limit_in_bytes")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	var buf []byte
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	for _, read := range []func(*[]byte) ([]byte, error){f.read, f.readAgain} {
		if b, err := read(&buf); !errors.Is(err, ErrGone) {
			t.Errorf("removed: %q, %v; want ErrGone", b, err)
		}
	}
	if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.dir(rel)+"/memory.limit_in_bytes", []byte("65536"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(&buf); !errors.Is(err, ErrGone) {
		t.Errorf("read looked the name up: %v", err)
	}
	for range 2 {
		if b, err := f.readAgain(&buf); parseNumber(b) != 65536 || err != nil {
			t.Errorf("made anew: %q, %v", b, err)
		}
	}
}

func TestNodeReadingAllocatesNothing(t *testing.T) {
	l := realV1(t)
	n := openNode(t, l, ownCgroup(t, l, "pids"))
	for name, read := range map[string]func() error{
		"MemInfo":     func() error { _, err := n.MemInfo(); return err },
		"Memory":      func() error { _, err := rootMemory(n); return err },
		"PodsMemory":  func() error { _, err := n.PodsMemory(); return err },
		"Pids":        func() error { _, err := n.Pids(); return err },
		"MemoryStall": func() error { _, err := n.MemoryStall(); return err },
		"IOStall":     func() error { _, err := n.IOStall(); return err },
	} {
		var err error
		if got := testing.AllocsPerRun(50, func() { err = errors.Join(err, read()) }); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
		if err != nil && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If the buffer were too small, a truncated number would read as a smaller one.
func TestReadingNeverCuts(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x 1\n", firstBuffer) + "total_inactive_file 12345"
	write(t, dir, map[string]string{"long": long, "endless": strings.Repeat("x", maxBuffer)})
	f, err := openFile(dir + "/long")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	var buf []byte
	b, err := f.read(&buf)
	if err != nil || len(b) != len(long) || parseKey(b, "total_inactive_file") != 12345 {
		t.Errorf("read %d of %d bytes, %v", len(b), len(long), err)
	}
	endless, err := openFile(dir + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.close()
	if _, err := endless.read(&buf); err == nil {
		t.Error("a file without an end was read")
	}
}

// The kernel returns /proc/zoneinfo node by node, and at most one of its own buffers at a time.
func TestEachLine(t *testing.T) {
	path := filepath.Join("testdata", "6.18-hybrid-cgroupfs", "proc", "zoneinfo")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, size := range []int{64, 4096, 2 * len(want)} {
		lines, lists, longest := 0, 0, 0
		if err := f.eachLine(make([]byte, size), func(line []byte) {
			lines, longest = lines+1, max(longest, len(line))
			if bytes.Contains(line, []byte("count:")) {
				lists++
			}
		}); err != nil {
			t.Errorf("%d bytes at a time: %v", size, err)
		}
		if lines != bytes.Count(want, []byte("\n"))+1 || lists != bytes.Count(want, []byte("count:")) || longest > 64 {
			t.Errorf("%d bytes at a time: %d lines with %d lists, the longest of %d bytes", size, lines, lists, longest)
		}
	}
}

// eachLine does not stop at a line longer than its buffer.
func TestEachLineTooLong(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"lines": "count: 1\n" + strings.Repeat("x", 100) + "\ncount: 2\ncount: 3"})
	f, err := openFile(dir + "/lines")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	var z zones
	if err := f.eachLine(make([]byte, 64), z.add); err != nil || z.lists != 6 {
		t.Errorf("%d pages, %v; want 6", z.lists, err)
	}
	f.close()
	if err := f.eachLine(make([]byte, 64), func([]byte) {}); err == nil {
		t.Error("a file that is closed was read")
	}
}

func BenchmarkNode(b *testing.B) {
	l := realV1(b)
	n := openNode(b, l, "")
	for _, r := range []struct {
		name string
		read func() error
	}{
		{"MemInfo", func() error { _, err := n.MemInfo(); return err }},
		{"Memory", func() error { _, err := rootMemory(n); return err }},
		{"Pids", func() error { _, err := n.Pids(); return err }},
		{"MemoryStall", func() error { _, err := n.MemoryStall(); return err }},
	} {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.read(); err != nil {
					need.PSI(b)
					b.Fatal(err)
				}
			}
		})
	}
}
