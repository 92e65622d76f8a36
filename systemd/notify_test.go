package systemd

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// service sets the environment of a service and returns the Notifier for it.
func service(t *testing.T, watchdogUSec string) (*Notifier, *receiver) {
	t.Helper()
	r := listen(t)
	t.Setenv("NOTIFY_SOCKET", r.path)
	t.Setenv("WATCHDOG_USEC", watchdogUSec)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n, err := NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n, r
}

func TestNotifierTellsStates(t *testing.T) {
	n, r := service(t, "")
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"ready", func() error { return n.Ready("no pressure") }, "READY=1\nSTATUS=no pressure"},
		{"status", func() error { return n.Status("MemoryPressure") }, "STATUS=MemoryPressure"},
		{"ready without status", func() error { return n.Ready("") }, "READY=1"},
		{"stopping", func() error { return n.Stopping("bye") }, "STOPPING=1\nSTATUS=bye"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			if got := r.next(); got != c.want {
				t.Errorf("received %q, want %q", got, c.want)
			}
		})
	}
}

// Type=notify-reload only counts a reload if both assignments arrive in one datagram, with a time not
// before systemd's own request.
func TestNotifierReloadingCarriesTheTime(t *testing.T) {
	n, r := service(t, "")
	before, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Reloading(); err != nil {
		t.Fatal(err)
	}
	after, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	state, usec, ok := strings.Cut(r.next(), "\nMONOTONIC_USEC=")
	if !ok || state != "RELOADING=1" {
		t.Fatalf("received %q, %q", state, usec)
	}
	at, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || at < before.Microseconds() || at > after.Microseconds() {
		t.Errorf("MONOTONIC_USEC=%s (%v), want between %d and %d", usec, err, before.Microseconds(), after.Microseconds())
	}
	if err := n.Ready("configuration refused"); err != nil {
		t.Fatal(err)
	}
	if got := r.next(); got != "READY=1\nSTATUS=configuration refused" {
		t.Errorf("received %q", got)
	}
}

func TestNotifierStatusIsSentOnce(t *testing.T) {
	n, r := service(t, "")
	for range 2 {
		if err := n.Status("same"); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.next(); got != "STATUS=same" {
		t.Fatalf("received %q", got)
	}
	r.none()

	t.Run("and again after it was lost", func(t *testing.T) {
		queued := r.fill()
		if err := n.Status("other"); !errors.Is(err, syscall.EAGAIN) {
			t.Fatalf("status: %v, want EAGAIN", err)
		}
		for range queued {
			r.next()
		}
		if err := n.Status("other"); err != nil {
			t.Fatal(err)
		}
		if got := r.next(); got != "STATUS=other" {
			t.Errorf("received %q", got)
		}
	})
}

func TestNotifierStatusIsOneLine(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"injected assignment", "pod a\nREADY=1", "pod a READY=1"},
		{"control characters", "a\x00b\tc\r\nd\x7f", "a b c  d"},
		{"not UTF-8", "a\xffb", "a�b"},
		{"long", strings.Repeat("é", maxStatus), strings.Repeat("é", (maxStatus-3)/2) + "…"},
		{"fits", strings.Repeat("x", maxStatus), strings.Repeat("x", maxStatus)},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, r := service(t, "")
			if err := n.Status(c.in); err != nil {
				t.Fatal(err)
			}
			if got := r.next(); got != "STATUS="+c.want {
				t.Errorf("received %q, want %q", got, c.want)
			}
		})
	}
}

func TestNotifierWatchdog(t *testing.T) {
	n, r := service(t, "8000000")
	if got := n.WatchdogInterval(); got != 8*time.Second {
		t.Fatalf("interval %v, want 8s", got)
	}
	fed := func(now time.Duration) {
		t.Helper()
		if err := n.Watchdog(now); err != nil {
			t.Fatal(err)
		}
	}
	fed(0)
	if got := r.next(); got != "WATCHDOG=1" {
		t.Fatalf("received %q", got)
	}
	fed(time.Millisecond)
	fed(1999 * time.Millisecond)
	r.none()
	fed(2 * time.Second)
	if got := r.next(); got != "WATCHDOG=1" {
		t.Fatalf("received %q", got)
	}

	t.Run("a lost one is made up for at once", func(t *testing.T) {
		queued := r.fill()
		if err := n.Watchdog(4 * time.Second); !errors.Is(err, syscall.EAGAIN) {
			t.Fatalf("watchdog: %v, want EAGAIN", err)
		}
		for range queued {
			r.next()
		}
		fed(4*time.Second + time.Millisecond)
		if got := r.next(); got != "WATCHDOG=1" {
			t.Errorf("received %q", got)
		}
	})
}

func TestNotifierWatchdogIsOff(t *testing.T) {
	for _, c := range []struct{ name, usec, pid string }{
		{"not asked for", "", ""},
		{"another process is watched", "8000000", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := listen(t)
			t.Setenv("NOTIFY_SOCKET", r.path)
			t.Setenv("WATCHDOG_USEC", c.usec)
			t.Setenv("WATCHDOG_PID", c.pid)
			n, err := NewNotifier()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = n.Close() }()
			if n.WatchdogInterval() != 0 {
				t.Errorf("interval %v, want 0", n.WatchdogInterval())
			}
			if err := n.Watchdog(time.Hour); err != nil {
				t.Fatal(err)
			}
			r.none()
		})
	}
}

func TestNotifierWithoutServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "8000000") // inherited from the service that started us
	n, err := NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]*Notifier{"made": n, "zero value": {}} {
		t.Run(name, func(t *testing.T) {
			if n.WatchdogInterval() != 0 {
				t.Errorf("interval %v, want 0", n.WatchdogInterval())
			}
			if err := errors.Join(n.Ready("x"), n.Reloading(), n.Status("x"), n.Watchdog(1), n.Stopping("x"), n.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNotifierWithWrongEnvironment(t *testing.T) {
	t.Run("socket", func(t *testing.T) {
		t.Setenv("NOTIFY_SOCKET", "nowhere")
		n, err := NewNotifier()
		if err == nil || !strings.HasPrefix(err.Error(), "read NOTIFY_SOCKET: ") {
			t.Errorf("err = %v", err)
		}
		if err := n.Ready(""); err != nil {
			t.Errorf("the Notifier is not quiet: %v", err)
		}
	})
	t.Run("watchdog", func(t *testing.T) {
		r := listen(t)
		t.Setenv("NOTIFY_SOCKET", r.path)
		t.Setenv("WATCHDOG_USEC", "soon")
		n, err := NewNotifier()
		if err == nil || !strings.HasPrefix(err.Error(), "read the watchdog's interval: ") {
			t.Errorf("err = %v", err)
		}
		if err := errors.Join(n.Watchdog(1), n.Ready("")); err != nil {
			t.Fatal(err)
		}
		if got := r.next(); got != "READY=1" {
			t.Errorf("received %q", got)
		}
	})
}

// While a change of state waits for a busy service manager, other notifications do not wait.
func TestNotifierWaitsAlone(t *testing.T) {
	n, r := service(t, "8000000")
	queued := r.fill()
	synctest.Test(t, func(t *testing.T) {
		told := make(chan error, 1)
		began := time.Now()
		go func() { told <- n.Ready("late") }()
		time.Sleep(statePatience / 4)
		synctest.Wait()
		if !n.mu.TryLock() {
			err := <-told // the test's clock stands still while a goroutine waits for a lock
			t.Fatalf("it is waited for with the lock: %v", err)
		}
		n.mu.Unlock()
		before := time.Now()
		for name, err := range map[string]error{"watchdog": n.Watchdog(1), "status": n.Status("x")} {
			if !errors.Is(err, syscall.EAGAIN) {
				t.Errorf("%s: %v, want EAGAIN", name, err)
			}
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("watchdog and status waited for %s", took)
		}
		for range queued {
			r.next()
		}
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < statePatience/4 || took >= statePatience {
			t.Errorf("told after %s", took)
		}
		if got := r.next(); got != "READY=1\nSTATUS=late" {
			t.Errorf("received %q", got)
		}
		r.fill()
		began = time.Now()
		if err := n.Stopping(""); !errors.Is(err, syscall.EAGAIN) || time.Since(began) != statePatience {
			t.Errorf("a manager that stays busy: %v after %s", err, time.Since(began))
		}
	})
}

func TestNotifierServiceManagerGone(t *testing.T) {
	n, r := service(t, "8000000")
	_ = r.conn.Close()
	for name, err := range map[string]error{"ready": n.Ready(""), "watchdog": n.Watchdog(1), "status": n.Status("x")} {
		if err == nil || !strings.HasPrefix(err.Error(), "notify service manager: send to "+r.path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNotifierClosedSaysNothing(t *testing.T) {
	n, r := service(t, "8000000")
	if err := errors.Join(n.Close(), n.Close(), n.Ready("x"), n.Status("y"), n.Watchdog(1)); err != nil {
		t.Error(err)
	}
	r.none()
}

func TestNotifierTogether(t *testing.T) {
	n, r := service(t, "1000000")
	const each = 3
	var wg sync.WaitGroup
	for range each {
		wg.Go(func() {
			if err := errors.Join(n.Status("the same"), n.Watchdog(time.Hour), n.Ready("")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := map[string]int{}
	for range 1 + 1 + each {
		got[r.next()]++
	}
	r.none()
	if got["STATUS=the same"] != 1 || got["WATCHDOG=1"] != 1 || got["READY=1"] != each {
		t.Errorf("received %v", got)
	}
}

func FuzzStatusLine(f *testing.F) {
	for _, s := range []string{"", "ok", "a\nREADY=1", "\xff\xfe", strings.Repeat("é", 600), "\u2028", "  x  "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := statusLine(s)
		if len(got) > maxStatus || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00") {
			t.Errorf("statusLine(%q) = %q", s, got)
		}
		if again := statusLine(got); again != got {
			t.Errorf("not stable: %q, then %q", got, again)
		}
	})
}
