package systemd

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// childSocket makes TestHandlerChild, in a separate process, log to its standard error or to the
// journal at this socket.
const childSocket = "CRIGUARD_TEST_JOURNAL"

func TestHandlerChild(t *testing.T) {
	socket := os.Getenv(childSocket)
	if socket == "" {
		// This is the other half of TestHandlerChoosesItsWay. On its own, it checks that an ordinary
		// process gets the text handler.
		t.Setenv("JOURNAL_STREAM", "")
		h, flush := NewHandler(slog.LevelInfo)
		flush()
		if _, ok := h.(*slog.TextHandler); !ok {
			t.Errorf("handler is a %T", h)
		}
		return
	}
	h, flush := newHandler(socket, slog.LevelInfo)
	defer flush()
	slog.New(h).Info("from the child", EventKey, EventStart, "pod", "default/a")
}

func TestHandlerChoosesItsWay(t *testing.T) {
	const text = `level=INFO msg="from the child" event=start pod=default/a`
	for _, c := range []struct {
		name   string
		stream func(st *syscall.Stat_t) string // JOURNAL_STREAM, given the child's standard error
		native bool
	}{
		{"standard error is the journal's", func(st *syscall.Stat_t) string { return fmt.Sprintf("%d:%d", st.Dev, st.Ino) }, true},
		{"standard error was redirected", func(st *syscall.Stat_t) string { return fmt.Sprintf("%d:%d", st.Dev, st.Ino+1) }, false},
		{"another device", func(st *syscall.Stat_t) string { return fmt.Sprintf("%d:%d", st.Dev+1, st.Ino) }, false},
		{"no journal", func(*syscall.Stat_t) string { return "" }, false},
		{"malformed", func(*syscall.Stat_t) string { return "journal" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := listen(t)
			stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stderr.Close() }()
			var st syscall.Stat_t
			if err := syscall.Fstat(int(stderr.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandlerChild$")
			cmd.Env = append(os.Environ(), childSocket+"="+r.path, "JOURNAL_STREAM="+c.stream(&st),
				"GORACE=atexit_sleep_ms=0") // the race detector would wait a second for reports
			cmd.Stderr = stderr
			if out, err := cmd.Output(); err != nil {
				t.Fatalf("child: %v\n%s", err, out)
			}
			written, err := os.ReadFile(stderr.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !c.native {
				r.none()
				if !strings.Contains(string(written), text) {
					t.Errorf("standard error has %q, want %q", written, text)
				}
				return
			}
			if got := r.record(); got.get("MESSAGE_ID") != EventStart.MessageID() || got.get("CRIGUARD_POD") != "default/a" {
				t.Errorf("record %q", got)
			}
			if len(written) > 0 {
				t.Errorf("standard error has %q too", written)
			}
		})
	}
}
