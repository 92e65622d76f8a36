package cgroup

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestParseNumber(t *testing.T) {
	for in, want := range map[string]int64{
		"0\n": 0, "42": 42, "42\n": 42, "42 kB": 42, "007": 7,
		"9223372036854775807\n": math.MaxInt64, "9223372036854771712\n": 9223372036854771712,
		"9223372036854775808": -1, "18446744073709551615": -1, "99999999999999999999999": -1,
		"": -1, "\n": -1, " 1": -1, "max\n": -1, "-1": -1, "+1": -1, "1x": -1, "0x10": -1, "1.5": -1, "\x00": -1,
	} {
		if got := parseNumber([]byte(in)); got != want {
			t.Errorf("parseNumber(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestParseKey(t *testing.T) {
	const stat = "cache 1\ninactive_file 2\n\ntotal_inactive_file 3\nodd\nswap\tx\ntotal_swap x\nlast 9"
	for key, want := range map[string]int64{
		"cache": 1, "inactive_file": 2, "total_inactive_file": 3, "last": 9,
		"odd": -1, "total_swap": -1, "swap": -1, "file": -1, "total": -1, "absent": -1,
	} {
		if got := parseKey([]byte(stat), key); got != want {
			t.Errorf("parseKey(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for in, want := range map[string]int64{
		"max\n": -1, "9223372036854771712\n": -1, "9223372036854710272\n": -1, // no limit (pages of 4 and 64 KiB)
		"0\n": 0, "1048576\n": 1 << 20, "": -1,
	} {
		if got := parseLimit([]byte(in)); got != want {
			t.Errorf("parseLimit(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestParseMemInfo(t *testing.T) {
	absent := MemInfo{-1, -1, -1, -1, -1, -1, 0}
	with := func(set func(*MemInfo)) MemInfo {
		m := absent
		set(&m)
		return m
	}
	for name, c := range map[string]struct {
		in   string
		want MemInfo
	}{
		"whole": {
			"MemTotal:  4028416 kB\nMemFree: 512000 kB\nMemAvailable: 2097152 kB\nActive(file): 1 kB\nInactive(file): 1048576 kB\nSwapTotal: 4 kB\nSwapFree: 0 kB\n",
			MemInfo{4028416 << 10, 512000 << 10, 2097152 << 10, 1048576 << 10, 4 << 10, 0, 0},
		},
		"before linux 3.14 there is no MemAvailable": {
			"MemTotal: 8 kB\nMemFree: 4 kB\n", with(func(m *MemInfo) { m.Total, m.Free = 8<<10, 4<<10 }),
		},
		"zero is not absent":      {"SwapTotal: 0 kB\n", with(func(m *MemInfo) { m.SwapTotal = 0 })},
		"empty":                   {"", absent},
		"no unit":                 {"MemTotal: 8", with(func(m *MemInfo) { m.Total = 8 << 10 })},
		"malformed numbers":       {"MemTotal: x kB\nMemFree: -4 kB\nMemAvailable:\nSwapFree 4 kB\n", absent},
		"more than can be":        {"MemTotal: 9223372036854775807 kB\n", absent},
		"unknown lines":           {"Hugepagesize: 2048 kB\nDirectMap4k: 1 kB\ngarbage\n::\nMemFree: 1 kB", with(func(m *MemInfo) { m.Free = 1 << 10 })},
		"a longer key is another": {"MemTotalX: 8 kB\nXMemTotal: 8 kB\n", absent},
		"reclaimable": {
			"KReclaimable: 80 kB\nSlab: 96 kB\nSReclaimable: 64 kB\n", with(func(m *MemInfo) { m.Reclaimable = 80 << 10 }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseMemInfo([]byte(c.in)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestZonesOfPageLists(t *testing.T) {
	for in, want := range map[string]int64{
		"              count:    12": 12, "count:5": 5, "              count:    0": 0,
		"              high:     7615": 0, "  pages free     772919": 0, "      nr_free_pages 41912": 0,
		"": 0, "count:": 0, "count: x": 0, "count: -4": 0, "count 4": 0, "account: 4": 0,
		"count: 2147483647": 2147483647, "count: 2147483648": 0, "count: 9223372036854775807": 0,
	} {
		var z zones
		if z.add([]byte(in)); z.lists != want || z.kept != 0 {
			t.Errorf("%q: %d pages, %d kept, want %d", in, z.lists, z.kept, want)
		}
	}
}

// The zones are those of a node of 64 GiB when its kernel killed: all of the free memory was kept back.
func TestZonesKept(t *testing.T) {
	const oom = `Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 16233745
  pages free     2816
        boost    0
        min      3
        low      6
        managed  2816
        protection: (0, 2367, 64163, 64163, 64163)
Node 0, zone    DMA32
  pages free     62381
        boost    0
        min      596
        low      1174
        protection: (0, 0, 61795, 61795, 61795)
      nr_free_pages 62381
Node 0, zone   Normal
  pages free     16285
        boost    0
        min      16295
        protection: (0, 0, 0, 0, 0)
  pagesets
    cpu: 0
              count: 7
Node 0, zone  Movable
  pages free     0
        boost    0
        min      32
        protection: (0, 0, 0, 0, 0)
`
	for name, c := range map[string]struct {
		text string
		want int64
	}{
		"out of memory": {oom, 2816 + 62381 + 16285},
		"plenty":        {strings.ReplaceAll(oom, "pages free     16285", "pages free     9000000"), 2816 + 62381 + 16295},
		"boosted":       {"pages free 900\n boost 70\n min 100\n protection: (0, 5)\n", 35},
		"linux 4.4":     {"pages free 900\n min 100\n protection: (0, 5)\n", 105},
		// A PC of 8 GiB: without the boost, min is 9679.
		"boosted, linux 5.4": {"pages free 33907\n min 31449\n low 33868\n high 36287\n protection: (0, 0)\n", 9679},
		"far high watermark": {"pages free 900\n min 100\n low 500\n high 900\n protection: (0, 0)\n", 100},
		"empty zone":         {"pages free 0\n min 32\n low 32\n high 32\n protection: (0, 0)\n", 0},
		"tiny zone":          {"pages free 900\n min 3\n low 3\n high 3\n protection: (0, 5)\n", 8},
		"odd":                {"pages free 900\n min x\n protection: (0, , 7, 99999999999)\nprotection: (3)\nmin 5\nprotection:\n", 7},
	} {
		var z zones
		for line := range strings.SplitSeq(c.text, "\n") {
			z.add([]byte(line))
		}
		if z.kept != c.want {
			t.Errorf("%s: %d pages kept, want %d", name, z.kept, c.want)
		}
	}
}

func TestParseStall(t *testing.T) {
	for name, c := range map[string]struct {
		in         string
		some, full int64 // microseconds; −1 = absent
	}{
		"both":             {"some avg10=1.52 avg60=0.87 avg300=0.33 total=9123456\nfull avg10=1.10 avg60=0.51 avg300=0.20 total=7000001\n", 9123456, 7000001},
		"cpu before 5.13":  {"some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n", 12, -1},
		"zero":             {"some total=0\nfull total=0\n", 0, 0},
		"empty":            {"", -1, -1},
		"no total":         {"some avg10=0.00\nfull\n", -1, -1},
		"malformed":        {"some avg10=0.00 total=x\nfull avg10=0.00 total=\n", -1, -1},
		"too long a time":  {"some total=9223372036854775\nfull total=9223372036854776\n", 9223372036854775, -1},
		"unknown lines":    {"most total=3\n\nfull total=4", -1, 4},
		"a word is a word": {"fully avg10=0.00 total=3\nsome total=1\n", 1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseStall([]byte(c.in))
			micros := func(d int64) int64 {
				if d < 0 {
					return -1
				}
				return d / 1000
			}
			if micros(int64(got.Some)) != c.some || micros(int64(got.Full)) != c.full {
				t.Errorf("got %+v, want some %d, full %d", got, c.some, c.full)
			}
		})
	}
}

func TestParseTasks(t *testing.T) {
	for in, want := range map[string]int64{
		"0.48 0.23 0.14 2/95 24792\n": 95, "0.00 0.00 0.00 1/0 1\n": 0,
		"": -1, "0.48 0.23 0.14": -1, "0.48 0.23 0.14 95 24792": -1, "0.48 0.23 0.14 2/x 1": -1,
		"1/2 3/4 5/6 x/7 8": -1, "1/2": -1, "0.1 0.2 0.3 /5 1": -1,
	} {
		if got := parseTasks([]byte(in)); got != want {
			t.Errorf("parseTasks(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestParseProcs(t *testing.T) {
	got := parseProcs([]byte("1\n0\nx\n-3\n4194304\n4194305\n99\n"))
	if want := []int{1, 4194304, 99}; len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v, want %v: 0 is a process of another PID namespace, the rest are no PIDs", got, want)
	}
}

// addFiles adds files of the captured trees to a corpus.
func addFiles(f *testing.F, paths ...string) {
	f.Helper()
	for _, tree := range []string{"6.18-hybrid-cgroupfs", "6.1-v2-systemd", "5.10-v1-cgroupfs"} {
		for _, path := range paths {
			if b, err := os.ReadFile("testdata/" + tree + "/" + path); err == nil {
				f.Add(b)
			}
		}
	}
	f.Add([]byte(""))
	f.Add([]byte("\n\n"))
}

func FuzzMemInfo(f *testing.F) {
	addFiles(f, "proc/meminfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := parseMemInfo(b)
		for _, v := range []int64{m.Total, m.Free, m.Available, m.InactiveFile, m.SwapTotal, m.SwapFree} {
			if v != -1 && (v < 0 || v%1024 != 0) {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func FuzzZones(f *testing.F) {
	for _, lines := range []string{
		"              count:    15104", "              high:     22319", "    cpu: 1", "  vm stats threshold: 24", "",
		"  pages free     62381\n        boost    0\n        min      596\n        protection: (0, 0, 61795, 61795, 61795)",
		"  pages free     33907\n        min      31449\n        low      33868\n        high     36287\n        protection: (0, 0)",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var z, indented zones
		lines := bytes.Split(b, []byte("\n"))
		for _, line := range lines {
			z.add(line)
			indented.add(append([]byte("   "), line...))
		}
		if most := int64(len(lines)) * math.MaxInt32; z.lists < 0 || z.lists > most || z.kept < 0 || z.kept > most {
			t.Fatalf("%+v", z)
		}
		if z != indented {
			t.Fatalf("%q: %+v, and %+v further to the right", b, z, indented)
		}
	})
}

func FuzzMemoryStat(f *testing.F) {
	addFiles(f, "sys/fs/cgroup/memory/memory.stat", "sys/fs/cgroup/memory.stat", "sys/fs/cgroup/kubepods.slice/memory.events",
		"sys/fs/cgroup/kubepods.slice/cgroup.events")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, key := range []string{"inactive_file", "total_inactive_file", "total_swap", "populated"} {
			got := parseKey(b, key)
			if got < -1 {
				t.Fatalf("%s = %d", key, got)
			}
			// parseKey must find a line that is put in front.
			if found := parseKey(append([]byte(key+" 7\n"), b...), key); found != 7 {
				t.Fatalf("%s 7 in front was read as %d", key, found)
			}
		}
	})
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "12\n", "max\n", "9223372036854775807", "9223372036854775808"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := parseNumber(b)
		if n < -1 || parseLimit(b) < -1 {
			t.Fatal(n)
		}
		if want, err := strconv.ParseUint(string(b), 10, 63); err == nil && n != int64(want) {
			t.Fatalf("%q: %d, want %d", b, n, want)
		}
	})
}

func FuzzStall(f *testing.F) {
	addFiles(f, "proc/pressure/memory", "proc/pressure/io")
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := parseStall(b); s.Some < -1 || s.Full < -1 {
			t.Fatalf("%+v", s)
		}
	})
}

func FuzzTasks(f *testing.F) {
	addFiles(f, "proc/loadavg")
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := parseTasks(b); n < -1 {
			t.Fatal(n)
		}
		for _, pid := range parseProcs(b) {
			if pid <= 0 || pid > maxPID {
				t.Fatal(pid)
			}
		}
	})
}
