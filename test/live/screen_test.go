package live_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// screen is a tmux terminal with a shell.
type screen struct {
	*node
	tmux   func(args ...string) *exec.Cmd
	socket string
}

// openScreen opens a terminal with the given columns and rows until the end of the test.
func (n *node) openScreen(width, height string) *screen {
	n.Helper()
	tmux, err := lab.Tmux(n.Context(), n.Logf)
	if err != nil {
		n.Fatal(err)
	}
	s := &screen{node: n, tmux: tmux, socket: filepath.Join(harness.ShortDir(n.T), "t")}
	s.do("-u", "-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height,
		"env", "LANG=C.UTF-8", "PS1=ready> ", "ENV=", "sh")
	n.Cleanup(func() {
		if n.Failed() {
			n.Logf("the screen:\n%s", s.text())
		}
		s.do("kill-server")
	})
	s.shows("ready>")
	return s
}

// do runs a tmux command and returns its output.
func (s *screen) do(args ...string) string {
	s.Helper()
	out, err := s.tmux(append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// press sends keys by their tmux names.
func (s *screen) press(keys ...string) { s.Helper(); s.do(append([]string{"send-keys"}, keys...)...) }

// enter types a line and presses Enter.
func (s *screen) enter(line string) {
	s.Helper()
	s.do("send-keys", "-l", line)
	s.press("Enter")
}

func (s *screen) resize(width, height string) {
	s.Helper()
	s.do("resize-window", "-x", width, "-y", height)
}

// text returns the content of the screen.
func (s *screen) text() string { s.Helper(); return s.do("capture-pane", "-p") }

// styled returns the content of the screen with its style sequences.
func (s *screen) styled() string { s.Helper(); return s.do("capture-pane", "-p", "-e") }

// says returns the value of a tmux variable.
func (s *screen) says(variable string) string {
	s.Helper()
	return strings.TrimSpace(s.do("display-message", "-p", "#{"+variable+"}"))
}

// shows waits until all texts are on the screen at the same time.
func (s *screen) shows(texts ...string) string {
	s.Helper()
	var last string
	s.until("the screen to show "+strings.Join(texts, ", "), func() bool {
		last = s.text()
		for _, t := range texts {
			if !strings.Contains(last, t) {
				return false
			}
		}
		return true
	})
	return last
}

// settings returns the terminal's settings, as stty prints them in its shell.
func (s *screen) settings() string {
	s.Helper()
	file := filepath.Join(s.dir, "stty")
	_ = os.Remove(file)
	s.enter("stty -a > " + file + ".new && mv " + file + ".new " + file)
	s.until("stty", func() bool { _, err := os.Stat(file); return err == nil })
	b, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}
