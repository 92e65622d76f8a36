package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with these tests in package a, and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.org/m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const header = "package a\nimport (\"errors\"; \"os\"; \"testing\"; \"fmt\")\nvar _ = errors.New; var _ = fmt.Sprint\n" +
	// first reports whether the test with this name runs for the first time.
	"func first(name string) bool { _, err := os.Stat(name); _ = os.WriteFile(name, nil, 0o600); return err != nil }\n"

// A failure is forgiven if the test passes the second time and nothing shows that the machine is not to blame.
func TestAgain(t *testing.T) {
	const flaky = "func TestFlaky(t *testing.T) { t.Run(\"sub test\", func(t *testing.T) { if first(t.Name()[10:]) { t.Error(\"too slow\") }; t.Log(\"has run\") }) }\n"
	for _, c := range []struct {
		name, tests string
		failed      bool
		want        []string
	}{
		{"passes", "func TestGood(t *testing.T) {}\n", false, []string{"\n1 tests passed, 0 failed, 0 flaky, 0 skipped, in 1 packages\n"}},
		{"fails once", flaky, false, []string{
			"\nFLAKY example.org/m/a TestFlaky/sub_test failed and then passed, alone\n--- the first time:\n", "too slow", "--- the second time:\n", "has run",
			"0 failed, 1 flaky, 0 skipped",
		}},
		{"fails always", flaky + "func TestBad(t *testing.T) { t.Error(\"wrong\") }\n", true, []string{
			"FLAKY example.org/m/a TestFlaky/sub_test", "\nFAILED example.org/m/a TestBad\n", "1 failed, 1 flaky",
		}},
		{"three fail", "func TestA(t *testing.T) { t.Error() }\nfunc TestB(t *testing.T) { t.Error() }\nfunc TestC(t *testing.T) { t.Error() }\n", true, []string{
			"nothing runs again: 3 tests failed, more than 2", "FAILED example.org/m/a TestC",
		}},
		{"races", "func TestRace(t *testing.T) { if first(\"race\") { n, done := 0, make(chan int); go func() { n++; close(done) }(); n++; <-done } }\n", true, []string{
			"nothing runs again: a data race", "FAILED example.org/m/a TestRace",
		}},
		{"panics", "func TestPanic(t *testing.T) { if first(\"panic\") { panic(\"boom\") } }\n", true, []string{"nothing runs again: a panic", "boom"}},
		{"leaks", flaky + "func TestMain(m *testing.M) { code := m.Run(); fmt.Println(\"leaked: a goroutine\"); os.Exit(code) }\n", true, []string{"nothing runs again: a leak"}},
		{"stops an innocent pod", "func TestStop(t *testing.T) { if first(\"stop\") { t.Error(\"innocent pod: default/calm is dead\") } }\n", true, []string{
			"nothing runs again: an innocent pod was stopped",
		}},
		{"fails outside", "func TestMain(m *testing.M) { m.Run(); os.Exit(1) }\nfunc TestGood(t *testing.T) {}\n", true, []string{"1 tests passed, 0 failed"}},
		{"does not compile", "func TestBad(t *testing.T) { undefined() }\n", true, []string{"undefined", "0 tests passed"}},
		{"skips", "func TestSkips(t *testing.T) { t.Skip(\"needs a moon\") }\n", false, []string{
			"\nskipped example.org/m/a TestSkips: needs a moon\n", "0 tests passed, 0 failed, 0 flaky, 1 skipped",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options{
				again: true, flags: []string{"-race", "-count=1", "-vet=off"}, packages: []string{"./a"},
				dir: module(t, map[string]string{"a/a_test.go": header + c.tests}),
			}
			var out strings.Builder
			failed, err := o.test(&out)
			if err != nil || failed != c.failed {
				t.Errorf("failed %t, error %v, want %t", failed, err, c.failed)
			}
			for _, w := range c.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("does not say %q", w)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

// Without -again, nothing runs a second time. -run and -skip select tests, and a test that hangs is named.
func TestOnce(t *testing.T) {
	dir := module(t, map[string]string{"a/a_test.go": header + `
func TestFlaky(t *testing.T) { if first("flaky") { t.Error("too slow") } }
func TestHang(t *testing.T) { select {} }
func TestOther(t *testing.T) { t.Error("is not run") }
`})
	var out strings.Builder
	o := options{flags: []string{"-timeout=1s"}, run: "Flaky|Other", skip: "Other", packages: []string{"./a"}, dir: dir}
	if failed, err := o.test(&out); err != nil || !failed || strings.Contains(out.String(), "again") || !strings.Contains(out.String(), "FAILED example.org/m/a TestFlaky") ||
		strings.Contains(out.String(), "is not run") {
		t.Errorf("failed %t, %v:\n%s", failed, err, out.String())
	}
	out.Reset()
	o.again, o.run = true, "Hang"
	if failed, err := o.test(&out); err != nil || !failed || !strings.Contains(out.String(), "nothing runs again: a hang") || !strings.Contains(out.String(), "FAILED example.org/m/a TestHang") {
		t.Errorf("failed %t, %v:\n%s", failed, err, out.String())
	}
}
