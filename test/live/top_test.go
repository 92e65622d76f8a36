package live_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// top starts the live view on the screen.
func (s *screen) top(env ...string) {
	s.Helper()
	s.enter(strings.Join(env, " ") + " " + harness.Criguard + " " + strings.Join(s.args("top"), " "))
}

// numberOf returns the key that chooses a signal.
func (s *screen) numberOf(signal string) string {
	s.Helper()
	m := regexp.MustCompile(`(?m)^.(\d)  ` + regexp.QuoteMeta(signal) + ` `).FindStringSubmatch(s.text())
	if m == nil {
		s.Fatalf("%s has no number", signal)
	}
	return m[1]
}

// back waits until the view has released the terminal, and checks that its settings are restored.
func (s *screen) back(settings string) {
	s.Helper()
	s.until("the view to leave the terminal", func() bool { return s.says("alternate_on") == "0" })
	if got := s.settings(); got != settings || !strings.Contains(got, " echo ") || !strings.Contains(got, " icanon ") {
		s.Errorf("stty says %q, before: %q", got, settings)
	}
	if s.says("cursor_flag") != "1" || s.says("wrap_flag") != "1" {
		s.Error("cursor or wrapping are not back")
	}
	s.enter("echo still 'here'")
	s.shows("still here", "echo still 'here'")
}

// The live view of a service with real pods, in a real terminal.
func TestTop(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(64 * mib)})
	n.hogs(large)
	leaking := n.pod(lab.PodSpec{Name: "leaking", Containers: leak(160*mib, "8")})
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: "10%"},
		soft: thresholds{policy.AllocatableMemoryAvailable: "30%", policy.PIDAvailable: "100"}, grace: thresholds{policy.AllocatableMemoryAvailable: "1h", policy.PIDAvailable: "1h"},
	})
	service := n.startWith(2)
	s := n.openScreen("80", "24")
	before := s.settings()

	s.top()
	first := s.shows("enforce mode, pid "+strconv.Itoa(service.Cmd.Process.Pid), "budget: hard 3 of 3", "▸1  memory.available",
		"┃", "╎", "PODS for memory.available, ranked by culprit, over_request, priority, over_by", "   1 default/large", "   2 default/leaking", "over_by=", "nothing has happened yet", "q quit")
	fits(t, first, 80, 24)
	if s.says("alternate_on") != "1" || !regexp.MustCompile(`\x1b\[([0-9]+;)*32m`).MatchString(s.styled()) {
		t.Error("the view has no screen of its own, or no colour")
	}

	// Choose another signal by its number, by an arrow key and by tab.
	s.press("2")
	s.shows("▸2  allocatableMemory", "PODS for allocatableMemory.available", "default/large")
	s.press("Up")
	s.shows("▸1  memory.available", "PODS for memory.available")
	s.press("BTab", "Tab", "Down")
	s.shows("▸2  allocatableMemory", "PODS for allocatableMemory.available", "default/large")
	s.press(s.numberOf("pid.available"))
	s.shows("PODS for pid.available, ranked by culprit, priority, usage", "default/large", "default/leaking")

	// The view predicts when a falling signal meets its threshold.
	n.release(leaking)
	s.shows("Mi/s soft in ")

	// Resize the terminal.
	s.resize("120", "40")
	wide := s.shows("REQUEST", "HARD", "SOFT", "922Mi", "LAST PASSES that did something", "PODS for pid.available")
	fits(t, wide, 120, 40)
	s.resize("40", "10")
	s.until("the small screen", func() bool {
		text := s.text()
		return strings.Contains(text, "▸") && !strings.Contains(text, "LAST PASSES")
	})
	fits(t, s.text(), 40, 10)

	// The help scrolls where it does not fit.
	s.press("?")
	fits(t, s.shows("HELP, lines 1 to ", "choose the signal"), 40, 10)
	s.press("Down")
	s.shows("HELP, lines 2 to ")
	s.press("End")
	fits(t, s.shows("HELP, lines ", "criguard(1) for more."), 40, 10)
	s.press("Home")
	s.shows("HELP, lines 1 to ", "choose the signal")
	s.press("x")
	s.until("the help to end", func() bool { return !strings.Contains(s.text(), "HELP") })
	s.resize("80", "24")
	s.shows("LAST PASSES that did something", "q quit")

	// The service is lost and comes back.
	service.Kill()
	s.shows("SERVICE LOST", "values", "old; trying again", "default/large", "ask service on")
	again := n.startWith(2)
	s.shows("enforce mode, pid " + strconv.Itoa(again.Cmd.Process.Pid))

	s.press("?")
	s.shows("the hard threshold: below it", "ctrl-c")
	s.press("x")
	s.shows("PODS for")
	s.press("p")
	s.shows("VIEW PAUSED", "p go on")
	s.press("q")
	s.back(before)

	// Without colour.
	s.enter("clear")
	s.top("NO_COLOR=1", "LANG=C")
	s.shows("enforce mode", "H hard  S soft", "default/large")
	if styled := s.styled(); regexp.MustCompile(`\x1b\[([0-9]+;)*3[1-6]`).MatchString(styled) || strings.Contains(styled, "┃") {
		t.Errorf("colours or more than ASCII in\n%s", styled)
	}
	s.press("C-c")
	s.back(before)

	// End the view with a signal.
	s.top()
	s.shows("enforce mode", "default/large")
	pane, err := strconv.Atoi(s.says("pane_pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children(t, pane) {
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	s.back(before)
	n.alive(large, leaking)
}

// fits checks that the screen has all its lines and that none is too wide.
func fits(t *testing.T, text string, width, height int) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != height || !strings.HasPrefix(lines[0], "criguard ") || !strings.HasPrefix(lines[height-1], "q quit") {
		t.Errorf("%d lines, want %d:\n%s", len(lines), height, text)
	}
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > width {
			t.Errorf("%d columns in %q", n, l)
		}
	}
}

// children returns the child processes of a process.
func children(t *testing.T, pid int) []int {
	t.Helper()
	out, err := exec.Command("ps", "--no-headers", "-o", "pid", "--ppid", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(out)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	return pids
}

// Without a service, the view shows the node directly. When a service starts, the view switches to
// it.
func TestTopWithoutService(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(64 * mib)})
	n.hogs(large)
	n.configure(config{hard: thresholds{policy.NodeFSAvailable: "1%"}})
	s := n.openScreen("100", "30")
	before := s.settings()
	s.top()
	s.shows("no service runs; inspecting the node directly", "   1 default/large", "only the service records passes", "containerd")
	s.press("n", "End", "Home", "Escape", "Down")
	s.shows("▸2", "default/large")
	s.press(s.numberOf("nodefs.available"))
	s.shows("PODS for nodefs.available, ranked by", "   - default/large", "its stop would give nothing back") // the measurement takes a while
	service := n.startWith(1)
	s.shows("enforce mode, pid " + strconv.Itoa(service.Cmd.Process.Pid))
	s.press("q")
	s.back(before)
}

// Without a terminal, top fails with a hint.
func TestTopNeedsTerminal(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	if a := n.criguard(n.args("top")...); a.Code != 2 || !strings.Contains(a.Err, "no terminal") || !strings.Contains(a.Err, "hint: `criguard status`") || a.Out != "" {
		t.Errorf("exit code %d, %q, stdout %q", a.Code, a.Err, a.Out)
	}
	if a := n.criguard(n.args("top", "--signal", "memory.availible")...); a.Code != 2 || !strings.Contains(a.Err, "memory.available") {
		t.Errorf("exit code %d, %q", a.Code, a.Err)
	}
	if a := n.criguard(n.args("top", "--interval", "1ms")...); a.Code != 2 || !strings.Contains(a.Err, "100ms") {
		t.Errorf("exit code %d, %q", a.Code, a.Err)
	}
	s := n.openScreen("80", "24")
	s.top("TERM=dumb")
	s.enter("echo ended with $?")
	s.shows("ended with 2", "hint: `criguard status`")
}
