package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// results collects what go test reports.
type results struct {
	out      io.Writer
	broken   bool // go test failed
	passed   int  // tests and subtests
	packages int
	skips    []string // with the reason

	logs   map[test]*strings.Builder // of tests that have not passed; of packages without a name
	failed []test
	begun  []test // those that have not ended
	reason string // why no failure may be forgiven
}

func newResults(out io.Writer) *results {
	return &results{out: out, logs: map[test]*strings.Builder{}}
}

// faults are what a busy machine cannot cause, by their traces in the output.
var faults = []struct{ trace, what string }{
	{"WARNING: DATA RACE", "a data race"},
	{"panic: test timed out", "a hang"},
	{"panic: ", "a panic"},
	{"fatal error: ", "a crash"},
	{"leaked: ", "a leak"},
	{"left behind: ", "something was left behind"},
	{"innocent pod: ", "an innocent pod was stopped"},
}

// read reads the output of go test -json. What is not an event, such as a usage error of go test, is printed.
func (r *results) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				fmt.Fprint(r.out, line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (r *results) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		r.begun = append(r.begun, t)
	case "output":
		r.output(t, e.Output)
	case "pass", "skip", "fail":
		r.end(t, e.Action)
	}
}

func (r *results) output(t test, text string) {
	for _, f := range faults {
		if r.reason == "" && strings.Contains(text, f.trace) {
			r.reason = f.what
		}
	}
	switch {
	case t.name == "" && (text == "PASS\n" || text == "FAIL\n"): // the next line has the package's name
	case t.name == "":
		fmt.Fprint(r.out, text)
	case !strings.HasPrefix(text, "=== "):
		if r.logs[t] == nil {
			r.logs[t] = &strings.Builder{}
		}
		r.logs[t].WriteString(text)
	}
}

func (r *results) end(t test, action string) {
	if t.name == "" {
		r.endPackage(t.pkg, action)
		return
	}
	r.begun = slices.DeleteFunc(r.begun, func(b test) bool { return b == t })
	switch action {
	case "pass":
		r.passed++
	case "fail":
		r.failed = append(r.failed, t)
		fmt.Fprint(r.out, r.logOf(t))
	case "skip":
		reason := strings.Join(strings.Fields(r.logOf(t)), " ")
		if _, after, found := strings.Cut(reason, ".go:"); found { // the line of the skip
			reason = after
		}
		_, reason, _ = strings.Cut(reason, ": ")
		reason, _, _ = strings.Cut(reason, " --- SKIP")
		r.skips = append(r.skips, t.String()+": "+reason)
	}
}

// endPackage prints the logs of tests that did not end, as one that hangs.
func (r *results) endPackage(pkg, action string) {
	if action != "skip" { // a package without tests
		r.packages++
	}
	begun := slices.Clone(r.begun)
	r.begun = slices.DeleteFunc(r.begun, func(b test) bool { return b.pkg == pkg })
	for _, t := range begun {
		if t.pkg == pkg {
			fmt.Fprintf(r.out, "--- %s did not end\n%s", t, r.logOf(t))
			r.failed = append(r.failed, t)
		}
	}
	if action == "fail" && r.reason == "" && !slices.ContainsFunc(r.failed, func(t test) bool { return t.pkg == pkg }) {
		r.reason = pkg + " failed outside of its tests"
	}
}

// logOf returns the output of a test itself, without that of its subtests.
func (r *results) logOf(t test) string {
	if b := r.logs[t]; b != nil {
		return b.String()
	}
	return ""
}

// failures returns the failed tests, without those that have failed subtests.
func (r *results) failures() []test {
	return slices.DeleteFunc(slices.Clone(r.failed), func(t test) bool {
		return slices.ContainsFunc(r.failed, func(sub test) bool { return sub.pkg == t.pkg && strings.HasPrefix(sub.name, t.name+"/") })
	})
}
