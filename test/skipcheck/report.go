package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// skip is a skipped test with what it said.
type skip struct{ pkg, test, said string }

// report is what came of the tests.
type report struct {
	passed, failed int
	packages       int
	failedPackages []string
	skips          []skip
}

// read takes the events from in and writes to out what `go test` would have: the
// closing line of each package, and all that a failed test said.
func read(in io.Reader, out io.Writer) (report, error) {
	var r report
	said := map[[2]string]*strings.Builder{} // by package and test, while it runs
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Fprintln(out, lines.Text()) // the go command itself
			continue
		}
		r.take(e, said, out)
	}
	if err := lines.Err(); err != nil {
		return r, fmt.Errorf("read test events: %w", err)
	}
	return r, nil
}

func (r *report) take(e event, said map[[2]string]*strings.Builder, out io.Writer) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		if e.Test == "" {
			if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
			return
		}
		if said[key] == nil {
			said[key] = &strings.Builder{}
		}
		if !strings.HasPrefix(e.Output, "=== ") {
			said[key].WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.closePackage(e, said, out)
			return
		}
		text := ""
		if b := said[key]; b != nil {
			text = b.String()
		}
		delete(said, key)
		r.closeTest(e, text, out)
	}
}

func (r *report) closeTest(e event, said string, out io.Writer) {
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprint(out, said)
	case "skip":
		r.skips = append(r.skips, skip{e.Package, e.Test, said})
	}
}

func (r *report) closePackage(e event, said map[[2]string]*strings.Builder, out io.Writer) {
	r.packages++
	if e.Action != "fail" {
		return
	}
	r.failedPackages = append(r.failedPackages, e.Package)
	for key, b := range said { // tests that a crash left without a result
		if key[0] == e.Package {
			fmt.Fprint(out, b.String())
			delete(said, key)
		}
	}
}

// judge prints the summary and says whether the tests count as passed.
func (r *report) judge(out io.Writer, m machine, strict bool) error {
	var errs []error
	fmt.Fprintf(out, "\n%d tests passed, %d failed, %d skipped, in %d packages\n", r.passed, r.failed, len(r.skips), r.packages)
	unexcused := 0
	for _, s := range r.skips {
		lacks, ok := m.excuse(s.said)
		if !ok {
			unexcused++
			lacks = "WITHOUT AN EXCUSE: " + strings.Join(strings.Fields(s.said), " ")
		}
		fmt.Fprintf(out, "skipped %s %s: %s\n", s.pkg, s.test, lacks)
	}
	if len(r.failedPackages) > 0 || r.failed > 0 {
		errs = append(errs, fmt.Errorf("%d tests failed, in %s", r.failed, strings.Join(r.failedPackages, ", ")))
	}
	if r.passed == 0 && r.failed == 0 {
		errs = append(errs, errors.New("no test ran"))
	}
	if unexcused > 0 && strict {
		errs = append(errs, fmt.Errorf("%d tests skipped without an excuse: say `needs …` for what this machine lacks, or run them", unexcused))
	}
	return errors.Join(errs...)
}
