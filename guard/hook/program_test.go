package hook

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// sh returns a program that runs a shell script.
func sh(script string, args ...string) *program {
	return &program{Command: append([]string{"/bin/sh", "-c", script, "hook"}, args...), Timeout: time.Minute, left: new(atomic.Int32)}
}

func TestProgramGetsItsEvent(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	r := sh(`cat; printf ' %s %s [%s]' "$CRIGUARD_EVENT" "$(pwd)" "$NOTIFY_SOCKET$1"`, "a b; $(false)").runOnce(t.Context(), []byte(`{"event":"stop"}`), "CRIGUARD_EVENT=stop")
	if want := `{"event":"stop"} stop / [a b; $(false)]`; r.Err != nil || r.Output != want {
		t.Errorf("%v, %q, want %q", r.Err, r.Output, want)
	}
}

func TestProgramFails(t *testing.T) {
	var exit *exec.ExitError
	if r := sh("echo bad >&2; exit 3").runOnce(t.Context(), nil); !errors.As(r.Err, &exit) || exit.ExitCode() != 3 || r.Output != "bad\n" {
		t.Errorf("%v, %q", r.Err, r.Output)
	}
	if r := (&program{Command: []string{"/no/such/program"}, Timeout: time.Second, left: new(atomic.Int32)}).runOnce(t.Context(), nil); !errors.Is(r.Err, os.ErrNotExist) {
		t.Errorf("%v", r.Err)
	}
	if r := sh("cat").runOnce(t.Context(), make([]byte, maxInput+1)); !errors.Is(r.Err, errInput) {
		t.Errorf("%v", r.Err)
	}
	// A program need not read its input.
	if r := sh("exit 0").runOnce(t.Context(), make([]byte, maxInput)); r.Err != nil {
		t.Errorf("%v", r.Err)
	}
}

// A short pipe does not keep a program that reads none of its input beyond its timeout.
func TestProgramWithAShortPipe(t *testing.T) {
	p := sh("exec sleep 600")
	p.Timeout = 50 * time.Millisecond
	p.pipe = func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
		raw, err := w.SyscallConn() // Fd would make writes block
		if err == nil {
			err = raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, os.Getpagesize()) })
		}
		return r, w, err
	}
	if r := p.runOnce(t.Context(), make([]byte, maxInput)); !errors.Is(r.Err, errTimeout) {
		t.Errorf("%v", r.Err)
	}
	p.Command, p.Timeout = sh("sleep 0.1; wc -c").Command, time.Minute
	if r := p.runOnce(t.Context(), make([]byte, maxInput)); r.Err != nil || strings.TrimSpace(r.Output) != strconv.Itoa(maxInput) {
		t.Errorf("%v, read %q", r.Err, r.Output)
	}
}

// children returns the processes whose command line contains a word.
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

// wantGone waits until no process has the word in its command line: a killed process is there until it
// runs once more.
func wantGone(t *testing.T, word string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for left := children(t, word); len(left) > 0; left = children(t, word) {
		if time.Now().After(deadline) {
			t.Fatalf("processes %v are left", left)
		}
	}
}

// untilThere returns a context that ends once a file exists. A script creates it when its trap is set.
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

// A program that hangs and ignores SIGTERM is killed together with its children.
func TestProgramHangs(t *testing.T) {
	word := "hang-" + strconv.Itoa(os.Getpid())
	ready := filepath.Join(t.TempDir(), "ready")
	p := sh(`trap '' TERM; sh -c 'trap "" TERM; : > "$1"; while :; do sleep 1; done' `+word+` "$1" & wait; while :; do sleep 1; done`, ready)
	if r := p.runOnce(untilThere(t, ready), nil); !errors.Is(r.Err, context.Canceled) || r.Took < killAfter {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
	wantGone(t, word)
}

func TestProgramEndsOnSIGTERM(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	p := sh(`trap 'echo ended; exit 0' TERM; : > "$1"; while :; do sleep 0.01; done`, ready)
	p.patience = time.Minute
	r := p.runOnce(untilThere(t, ready), nil)
	if !errors.Is(r.Err, context.Canceled) || !strings.Contains(r.Output, "ended") {
		t.Errorf("after %s: %v, %q", r.Took, r.Err, r.Output)
	}
}

// A program that floods its output loses it at once, and usually dies of it.
func TestProgramFloods(t *testing.T) {
	if r := sh("exec yes").runOnce(t.Context(), nil); !errors.Is(r.Err, errFlood) || len(r.Output) != maxOutput {
		t.Errorf("after %s: %v, %d bytes", r.Took, r.Err, len(r.Output))
	}
	p := sh(`trap '' PIPE; while :; do head -c 100000 /dev/zero; sleep 0.1; done 2>/dev/null`)
	p.Timeout = 300 * time.Millisecond
	if r := p.runOnce(t.Context(), nil); !errors.Is(r.Err, errTimeout) {
		t.Errorf("one that does not mind: after %s: %v", r.Took, r.Err)
	}
	// A little more output than is kept is not a flood.
	if r := sh("head -c 60000 /dev/zero").runOnce(t.Context(), nil); r.Err != nil || len(r.Output) != maxOutput {
		t.Errorf("a long output: %v, %d bytes", r.Err, len(r.Output))
	}
}

// Processes left behind in the program's group are killed. A process that has left the group does
// not delay Run, even if it holds the output open.
func TestProgramLeavesChildren(t *testing.T) {
	word := "left-" + strconv.Itoa(os.Getpid())
	r := sh(`sh -c 'while :; do sleep 1; done' `+word+` & exit 0`).runOnce(t.Context(), nil)
	if r.Err != nil {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
	wantGone(t, word+"\x00")
	out := filepath.Join(t.TempDir(), "left")
	r = sh(`setsid sh -c 'echo $$; : > "$0"; exec sleep 600' "$1" & while [ ! -e "$1" ]; do sleep 0.01; done`, out).runOnce(t.Context(), nil)
	pid, err := strconv.Atoi(strings.TrimSpace(r.Output))
	if r.Err != nil || err != nil || r.Took > time.Minute {
		t.Errorf("%v after %s, %q", r.Err, r.Took, r.Output)
	} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("end the one that left: %v", err)
	}
}

// A program in an uninterruptible sleep, which survives SIGKILL, is left behind and reaped when it ends. There is a limit to
// how many.
func TestProgramSurvivesSIGKILL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{Command: []string{"/no/such/program"}, Timeout: 10 * time.Second, left: new(atomic.Int32)}
		var kills []syscall.Signal
		exited, reaped := make(chan struct{}), 0
		for i := range int32(maxLeft) {
			if r := p.runOnce(t.Context(), nil); !errors.Is(r.Err, os.ErrNotExist) {
				t.Errorf("with %d left: %v", i, r.Err)
			}
			started := time.Now()
			err := p.attend(t.Context(), child{exited, func(sig syscall.Signal) { kills = append(kills, sig) }, func() error { reaped++; return nil }})
			if took := time.Since(started); took != p.Timeout+killAfter+dieFor || p.left.Load() != i+1 {
				t.Errorf("took %s, %d left", took, p.left.Load())
			}
			if !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "survives SIGKILL") {
				t.Errorf("%v", err)
			}
		}
		if want := slices.Repeat([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, maxLeft); !slices.Equal(kills, want) {
			t.Errorf("sent %v", kills)
		}
		if r := p.runOnce(t.Context(), nil); !errors.Is(r.Err, errLeft) {
			t.Errorf("with %d left: %v", p.left.Load(), r.Err)
		}
		for i := range int32(maxLeft) {
			exited <- struct{}{}
			synctest.Wait()
			if want := maxLeft - i - 1; p.left.Load() != want || reaped != int(i)+1 {
				t.Errorf("%d left, %d reaped", p.left.Load(), reaped)
			}
		}
		if r := p.runOnce(t.Context(), nil); !errors.Is(r.Err, os.ErrNotExist) {
			t.Errorf("%v", r.Err)
		}
	})
}

func TestProgramEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := sh("exec sleep 600").runOnce(ctx, nil); !errors.Is(r.Err, context.DeadlineExceeded) || r.Took > time.Minute {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
}

// A program does not inherit the guard's protection.
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
	r := sh(`read -r _; cat /proc/self/oom_score_adj; grep VmLck /proc/self/status; cut -d' ' -f19 /proc/self/stat`).runOnce(t.Context(), []byte("event\n"))
	if want := "500\nVmLck:\t       0 kB\n10\n"; r.Err != nil || r.Output != want {
		t.Errorf("%v, %q, want %q", r.Err, r.Output, want)
	}
}
