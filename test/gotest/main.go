package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxAgain is how many tests of a run may fail and pass the second time.
const maxAgain = 2

// options are the arguments.
type options struct {
	again     bool
	flags     []string // of go test
	run, skip string   // as in go test
	packages  []string
	dir       string // of the module; "": the working directory
}

func main() {
	var o options
	flag.BoolVar(&o.again, "again", false, "run failed tests once more, alone")
	flags := flag.String("flags", "", "flags for go test, separated by spaces")
	flag.StringVar(&o.run, "run", "", "only tests that match, as in go test")
	flag.StringVar(&o.skip, "skip", "", "no tests that match, as in go test")
	flag.Parse()
	o.flags, o.packages = strings.Fields(*flags), flag.Args()
	failed, err := o.test(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}

// test runs the tests and reports whether the run failed.
func (o options) test(w io.Writer) (failed bool, err error) {
	before := kernelKills()
	first := newResults(w)
	if err := o.goTest(first, o.run, o.skip, o.packages...); err != nil {
		return false, err
	}
	failures, flaky := first.failures(), []string(nil)
	if o.again && len(failures) > 0 {
		switch {
		case first.reason != "":
			fmt.Fprintf(w, "\nnothing runs again: %s\n", first.reason)
		case len(failures) > maxAgain:
			fmt.Fprintf(w, "\nnothing runs again: %d tests failed, more than %d\n", len(failures), maxAgain)
		case kernelKills() != before:
			fmt.Fprintln(w, "\nnothing runs again: the kernel ran out of memory and killed processes")
		default:
			failures, flaky, err = o.runAgain(w, first, failures)
		}
	}
	fmt.Fprintln(w)
	for _, s := range first.skips {
		fmt.Fprintln(w, "skipped", s)
	}
	for _, text := range flaky {
		fmt.Fprint(w, text)
	}
	for _, t := range failures {
		fmt.Fprintf(w, "FAILED %s\n", t)
	}
	failed = len(failures) > 0 || first.broken && len(flaky) == 0
	fmt.Fprintf(w, "%d tests passed, %d failed, %d flaky, %d skipped, in %d packages\n",
		first.passed+len(flaky), len(failures), len(flaky), len(first.skips), first.packages)
	return failed, err
}

// runAgain runs each failed test once more, alone. It returns those that failed again, and what to print of the others.
func (o options) runAgain(w io.Writer, first *results, failed []test) (still []test, flaky []string, err error) {
	for _, t := range failed {
		fmt.Fprintf(w, "\nrunning %s again\n", t)
		second := newResults(w)
		if err := o.goTest(second, t.pattern(), "", t.pkg); err != nil {
			return failed, nil, err
		}
		if second.broken || len(second.failures()) > 0 || second.passed == 0 {
			still = append(still, t)
			continue
		}
		flaky = append(flaky, fmt.Sprintf("\nFLAKY %s failed and then passed, alone\n--- the first time:\n%s--- the second time:\n%s",
			t, first.logOf(t), second.logOf(t)))
	}
	return still, flaky, nil
}

// goTest runs go test.
func (o options) goTest(r *results, run, skip string, packages ...string) error {
	args := slices.Concat([]string{"test", "-json"}, o.flags)
	if run != "" {
		args = append(args, "-run", run)
	}
	if skip != "" {
		args = append(args, "-skip", skip)
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir, cmd.Stderr = o.dir, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := r.read(out)
	err = cmd.Wait()
	r.broken = err != nil
	return readErr
}

// test is a test or a subtest.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// pattern returns the -run expression for the test alone.
func (t test) pattern() string {
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// kernelKills returns how many processes the kernel has killed for lack of memory since boot.
func kernelKills() int {
	text, _ := os.ReadFile("/proc/vmstat")
	_, rest, _ := strings.Cut(string(text), "\noom_kill ")
	number, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(number)
	return n
}
