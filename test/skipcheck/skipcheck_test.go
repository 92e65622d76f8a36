package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plain is a machine like a small test machine: root, Linux 6.1, cgroup v1.
func plain() machine {
	return machine{
		kernel: [2]int{6, 1}, systemd: 252, root: true, caps: 1<<5 | 1<<21, memory: [3]bool{1: true},
		exists: func(path string) bool { return path == "/dev/null" || path == "/proc/pressure/memory" },
	}
}

func TestExcuse(t *testing.T) {
	for _, c := range []struct {
		said, lacks string
	}{
		{"    x_test.go:3: needs linux 6.9 (swappiness)\n--- SKIP: TestX (0.00s)\n", "needs linux 6.9"},
		{"needs linux 7.0", "needs linux 7.0"},
		{"needs linux 6.1", ""},
		{"needs linux 5.14, for cgroup.kill", ""},
		{"needs kernel 6.10", "needs kernel 6.10"},
		{"needs cgroup v2", "needs cgroup v2"},
		{"needs cgroup v1", ""},
		{"needs cgroup v2 and needs linux 5.14", "needs cgroup v2"},
		{"needs linux 5.14 and needs cgroup v2", "needs cgroup v2"},
		{"needs root", ""},
		{"needs CAP_SYS_RESOURCE for short windows", "needs CAP_SYS_RESOURCE"},
		{"needs CAP_KILL", ""},
		{"needs CAP_MADE_UP", ""},
		{"needs swap", "needs swap"},
		{"needs PSI", ""},
		{"needs systemd 252 (journalctl)", ""},
		{"needs systemd 255", "needs systemd 255"},
		{"needs systemd as PID 1", "needs systemd as PID 1"},
		{"needs /dev/kvm", "needs /dev/kvm"},
		{"needs /dev/null", ""},
		{"needs more time", ""},
		{"flaky", ""},
		{"", ""},
	} {
		t.Run(c.said, func(t *testing.T) {
			lacks, ok := plain().excuse(c.said)
			if lacks != c.lacks || ok != (c.lacks != "") {
				t.Errorf("excuse = %q, %v, want %q", lacks, ok, c.lacks)
			}
		})
	}
}

const passing = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: quiet\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
`

const closing = `{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`

func skipping(said string) string {
	return `{"Action":"output","Package":"p","Test":"TestS","Output":"    s_test.go:1: ` + said + `\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestS"}
`
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, in string
		strict   bool
		says     []string
		never    string
		err      string
	}{
		{"passed", passing + closing, true, []string{"ok  \tp\t0.1s\n", "1 tests passed, 0 failed, 0 skipped, in 1 packages"}, "quiet", ""},
		{"excused", passing + skipping("needs cgroup v2") + closing, true, []string{"skipped p TestS: needs cgroup v2\n"}, "EXCUSE", ""},
		{"not excused", passing + skipping("no time") + closing, true,
			[]string{"TestS: WITHOUT AN EXCUSE: s_test.go:1: no time"}, "", "1 tests skipped without an excuse"},
		{"not strict", passing + skipping("no time") + closing, false, []string{"WITHOUT AN EXCUSE"}, "", ""},
		{"failed", passing + `{"Action":"output","Package":"p","Test":"TestF","Output":"    f_test.go:1: loud\n"}
{"Action":"output","Package":"p","Test":"TestF","Output":"--- FAIL: TestF (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestF"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p"}
`, false, []string{"loud", "--- FAIL: TestF", "FAIL\n"}, "quiet", "1 tests failed, in p"},
		{"crashed", passing + `{"Action":"output","Package":"p","Test":"TestC","Output":"panic: oh\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`, false, []string{"panic: oh"}, "", "0 tests failed, in p"},
		{"not built", `{"ImportPath":"p","Action":"build-output","Output":"p/x.go:1: no\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`, false, []string{"p/x.go:1: no", "[build failed]"}, "", "0 tests failed, in p"},
		{"nothing", "", false, nil, "", "no test ran"},
		{"only the go command", "go: no such package\n", false, []string{"go: no such package"}, "", "no test ran"},
		{"only packages without tests", `{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}
{"Action":"skip","Package":"p"}
`, true, []string{"[no test files]"}, "skipped p", "no test ran"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r, err := read(strings.NewReader(c.in), &out)
			if err != nil {
				t.Fatal(err)
			}
			err = r.judge(&out, plain(), c.strict)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("err = %v, want %q", err, c.err)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
			if c.never != "" && strings.Contains(out.String(), c.never) {
				t.Errorf("output has %q:\n%s", c.never, out.String())
			}
		})
	}
}

var skips = regexp.MustCompile(`\.Skip(?:f|Now)?\(.*`)

// Every test that may be skipped names what excuses it, as machine knows it.
func TestSkipsNameTheirNeeds(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || filepath.Dir(path) == "../../test/skipcheck" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, skip := range skips.FindAllString(string(text), -1) {
			found++
			if !needs.MatchString(skip) {
				t.Errorf("%s: %s names no need", path, skip)
			}
		}
		return err
	})
	if err != nil || found < 20 {
		t.Errorf("%d found, %v", found, err)
	}
}

func TestThisMachine(t *testing.T) {
	m := thisMachine()
	if m.kernel[0] < 3 || m.exists == nil || !m.exists("/proc/self") {
		t.Errorf("machine %+v", m)
	}
	if m.root && m.caps == 0 {
		t.Error("root without capabilities")
	}
}
