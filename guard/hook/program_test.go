package hook

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sh is a program of a shell's.
func sh(script string, args ...string) Program {
	return Program{Command: append([]string{"/bin/sh", "-c", script, "hook"}, args...), Timeout: time.Minute}
}

func TestProgramGetsItsEvent(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	r := sh(`cat; printf ' %s %s [%s]' "$CRIGUARD_EVENT" "$(pwd)" "$NOTIFY_SOCKET$1"`, "a b; $(false)").Run(t.Context(), []byte(`{"event":"stop"}`), "CRIGUARD_EVENT=stop")
	if want := `{"event":"stop"} stop / [a b; $(false)]`; r.Err != nil || r.Output != want {
		t.Errorf("%v, %q, want %q", r.Err, r.Output, want)
	}
}

func TestProgramFails(t *testing.T) {
	var exit *exec.ExitError
	if r := sh("echo bad >&2; exit 3").Run(t.Context(), nil); !errors.As(r.Err, &exit) || exit.ExitCode() != 3 || r.Output != "bad\n" {
		t.Errorf("%v, %q", r.Err, r.Output)
	}
	if r := (Program{Command: []string{"/no/such/program"}, Timeout: time.Second}).Run(t.Context(), nil); !errors.Is(r.Err, os.ErrNotExist) {
		t.Errorf("%v", r.Err)
	}
	if r := sh("cat").Run(t.Context(), make([]byte, MaxInput+1)); !errors.Is(r.Err, ErrInput) {
		t.Errorf("%v", r.Err)
	}
	// It need not read what it is given.
	if r := sh("exit 0").Run(t.Context(), make([]byte, MaxInput)); r.Err != nil {
		t.Errorf("%v", r.Err)
	}
}

// children are the processes whose command line has a word.
func children(t *testing.T, word string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), word) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// wantGone waits for the end of all processes whose command line has a word: one that was
// killed is there until it gets to run once more.
func wantGone(t *testing.T, word string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for left := children(t, word); len(left) > 0; left = children(t, word) {
		if time.Now().After(deadline) {
			t.Fatalf("processes %v are left", left)
		}
	}
}

// untilThere gives a context that ends once a file is there: a shell makes it when its trap is set.
func untilThere(t *testing.T, file string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for _, err := os.Stat(file); err != nil && ctx.Err() == nil; _, err = os.Stat(file) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return ctx
}

// One that hangs, and takes SIGTERM for nothing, is gone with all its children.
func TestProgramHangs(t *testing.T) {
	word := "hang-" + strconv.Itoa(os.Getpid())
	ready := filepath.Join(t.TempDir(), "ready")
	p := sh(`trap '' TERM; sh -c 'trap "" TERM; : > "$1"; while :; do sleep 1; done' `+word+` "$1" & wait; while :; do sleep 1; done`, ready)
	if r := p.Run(untilThere(t, ready), nil); !errors.Is(r.Err, context.Canceled) || r.Took < killAfter {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
	wantGone(t, word)
}

func TestProgramEndsOnSIGTERM(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	p := sh(`trap 'echo ended; exit 0' TERM; : > "$1"; while :; do sleep 0.01; done`, ready)
	p.patience = time.Minute
	r := p.Run(untilThere(t, ready), nil)
	if !errors.Is(r.Err, context.Canceled) || !strings.Contains(r.Output, "ended") {
		t.Errorf("after %s: %v, %q", r.Took, r.Err, r.Output)
	}
}

// One that floods loses its output, and mostly its life, at once.
func TestProgramFloods(t *testing.T) {
	if r := sh("exec yes").Run(t.Context(), nil); !errors.Is(r.Err, ErrFlood) || len(r.Output) != MaxOutput {
		t.Errorf("after %s: %v, %d bytes", r.Took, r.Err, len(r.Output))
	}
	p := sh(`trap '' PIPE; while :; do head -c 100000 /dev/zero; sleep 0.1; done 2>/dev/null`)
	p.Timeout = 300 * time.Millisecond
	if r := p.Run(t.Context(), nil); !errors.Is(r.Err, ErrTimeout) {
		t.Errorf("one that does not mind: after %s: %v", r.Took, r.Err)
	}
	// Some more than is kept is no flood.
	if r := sh("head -c 60000 /dev/zero").Run(t.Context(), nil); r.Err != nil || len(r.Output) != MaxOutput {
		t.Errorf("a long output: %v, %d bytes", r.Err, len(r.Output))
	}
}

// What it leaves behind in its group goes with it; what has left its group does not
// keep Run, though it holds the output open.
func TestProgramLeavesChildren(t *testing.T) {
	word := "left-" + strconv.Itoa(os.Getpid())
	r := sh(`sh -c 'while :; do sleep 1; done' `+word+` & exit 0`).Run(t.Context(), nil)
	if r.Err != nil {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
	wantGone(t, word+"\x00")
	out := filepath.Join(t.TempDir(), "left")
	r = sh(`setsid sh -c 'echo $$; : > "$0"; exec sleep 600' "$1" & while [ ! -e "$1" ]; do sleep 0.01; done`, out).Run(t.Context(), nil)
	pid, err := strconv.Atoi(strings.TrimSpace(r.Output))
	if r.Err != nil || err != nil || r.Took > time.Minute {
		t.Errorf("%v after %s, %q", r.Err, r.Took, r.Output)
	} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("end the one that left: %v", err)
	}
}

func TestProgramEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := sh("exec sleep 600").Run(ctx, nil); !errors.Is(r.Err, context.DeadlineExceeded) || r.Took > time.Minute {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
}

// It inherits nothing of what keeps the guard alive.
func TestProgramIsExpendable(t *testing.T) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Mlock(page)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	own, err := os.ReadFile("/proc/self/status")
	if err != nil || strings.Contains(string(own), "VmLck:\t       0 kB") {
		t.Fatalf("this process locks nothing: %v\n%s", err, own)
	}
	r := sh(`read -r _; cat /proc/self/oom_score_adj; grep VmLck /proc/self/status; cut -d' ' -f19 /proc/self/stat`).Run(t.Context(), []byte("event\n"))
	if want := "500\nVmLck:\t       0 kB\n10\n"; r.Err != nil || r.Output != want {
		t.Errorf("%v, %q, want %q", r.Err, r.Output, want)
	}
}
