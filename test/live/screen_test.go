package live_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// screen is a terminal of tmux with a shell on it.
type screen struct {
	*node
	tmux   func(args ...string) *exec.Cmd
	socket string
}

// openScreen opens a terminal of so many columns and rows until the end of the test.
func (n *node) openScreen(width, height string) *screen {
	n.Helper()
	tmux, err := lab.Tmux(n.Context(), n.Logf)
	if err != nil {
		n.Fatal(err)
	}
	s := &screen{node: n, tmux: tmux, socket: filepath.Join(shortDir(n.T), "t")}
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

// shortDir is a directory whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "top")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// do runs a command of tmux and returns what it prints.
func (s *screen) do(args ...string) string {
	s.Helper()
	out, err := s.tmux(append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// press presses keys, by tmux' names for them.
func (s *screen) press(keys ...string) { s.Helper(); s.do(append([]string{"send-keys"}, keys...)...) }

// enter types a line.
func (s *screen) enter(line string) {
	s.Helper()
	s.do("send-keys", "-l", line)
	s.press("Enter")
}

func (s *screen) resize(width, height string) {
	s.Helper()
	s.do("resize-window", "-x", width, "-y", height)
}

// text is what is on the screen.
func (s *screen) text() string { s.Helper(); return s.do("capture-pane", "-p") }

// styled is the same with the sequences for its styles.
func (s *screen) styled() string { s.Helper(); return s.do("capture-pane", "-p", "-e") }

// says is a variable of tmux'.
func (s *screen) says(variable string) string {
	s.Helper()
	return strings.TrimSpace(s.do("display-message", "-p", "#{"+variable+"}"))
}

// shows waits until all texts are on the screen at once.
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

// settings are those of the terminal, as stty tells a shell on it.
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
