package systemd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier reports the state of the service to the service manager (sd_notify(3)). The zero value, and
// a Notifier created without NOTIFY_SOCKET, sends nothing and returns no error. It may be used from
// several goroutines.
type Notifier struct {
	mu       sync.Mutex // never held while waiting for a busy service manager
	socket   *datagrams // nil: there is no NOTIFY_SOCKET
	status   string     // last status that was sent
	interval time.Duration
	fed      time.Duration // time of the last watchdog notification, by the caller's clock
	everFed  bool
}

// Limits for notifications.
const (
	// maxStatus is the maximum length of a status line in bytes: systemctl shows it on one line.
	maxStatus = 512
	// statePatience is how long a change of state may wait for a busy service manager. The wait is
	// worth it: a lost READY=1 is a failed start.
	statePatience = time.Second
	// feeds is the maximum number of watchdog notifications per interval.
	feeds = 4
)

// NewNotifier creates the Notifier of this process from NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
// The Notifier is usable even if there is an error; it then ignores the invalid variables.
func NewNotifier() (*Notifier, error) {
	n := &Notifier{}
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return n, nil
	}
	socket, err := openDatagrams(path)
	if err != nil {
		return n, fmt.Errorf("read NOTIFY_SOCKET: %w", err)
	}
	n.socket = socket
	if n.interval, err = daemon.SdWatchdogEnabled(false); err != nil {
		return n, fmt.Errorf("read the watchdog's interval: %w", err)
	}
	return n, nil
}

// WatchdogInterval is how long the service manager waits for a watchdog notification before it kills
// the service; 0 means forever. Unless the decision loop completes a pass at least twice in that time,
// the service counts as hung.
func (n *Notifier) WatchdogInterval() time.Duration { return n.interval }

// Ready reports that the service has started or has finished reloading. It waits up to a second for a
// busy service manager.
func (n *Notifier) Ready(status string) error {
	return n.state(daemon.SdNotifyReady, status)
}

// Stopping reports that the service is shutting down. It waits up to a second for a busy service
// manager.
func (n *Notifier) Stopping(status string) error {
	return n.state(daemon.SdNotifyStopping, status)
}

// Reloading reports that the service re-reads its configuration. Call Ready afterwards, whether the new
// configuration was accepted or refused. The datagram includes the time, without which
// Type=notify-reload (systemd 253) ignores it. Reloading waits up to a second for a busy service
// manager.
func (n *Notifier) Reloading() error {
	now, err := monotonic()
	if err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return n.state(daemon.SdNotifyReloading+"\nMONOTONIC_USEC="+strconv.FormatInt(now.Microseconds(), 10), "")
}

// Status sets the line that `systemctl status` shows. It does not send the same line twice in a row and
// never waits.
func (n *Notifier) Status(line string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	line = statusLine(line)
	if n.socket == nil || line == n.status {
		return nil
	}
	if err := n.send("STATUS=" + line); err != nil {
		return err
	}
	n.status = line
	return nil
}

// Watchdog reports a sign of life. Call it from the decision loop after each pass, with the time since
// boot. It notifies the service manager at most four times per interval, so it may be called at any
// rate. It never waits.
func (n *Notifier) Watchdog(now time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.socket == nil || n.interval == 0 || (n.everFed && now-n.fed < n.interval/feeds) {
		return nil
	}
	if err := n.send(daemon.SdNotifyWatchdog); err != nil {
		return err
	}
	n.fed, n.everFed = now, true
	return nil
}

// Close closes the socket. Later notifications are not sent.
func (n *Notifier) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.socket == nil {
		return nil
	}
	err := n.socket.close()
	n.socket = nil
	return err
}

// state sends a change of state and retries while the service manager is busy.
func (n *Notifier) state(state, status string) error {
	status = statusLine(status)
	for waited := time.Duration(0); ; waited += retryPause {
		err := n.tell(state, status)
		if !errors.Is(err, syscall.EAGAIN) || waited >= statePatience {
			return err
		}
		time.Sleep(retryPause)
	}
}

// tell sends a state once.
func (n *Notifier) tell(state, status string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.socket == nil {
		return nil
	}
	if status == "" {
		return n.send(state)
	}
	if err := n.send(state + "\nSTATUS=" + status); err != nil {
		return err
	}
	n.status = status
	return nil
}

// send sends without waiting.
func (n *Notifier) send(state string) error {
	if err := n.socket.send([]byte(state), 0); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return nil
}

// statusLine converts s to one line of valid UTF-8: a pod's name in it must not add an assignment, and
// the service manager refuses anything that is not UTF-8.
func statusLine(s string) string {
	s = strings.ToValidUTF8(s, "�")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return cut(strings.TrimSpace(s), maxStatus)
}

// cut shortens s to at most limit bytes, at a character boundary, and appends "…" if it does. limit
// must be at least the length of that mark.
func cut(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// monotonic returns CLOCK_MONOTONIC, the clock of the service manager. Unlike the time since boot, it
// stops while the machine is suspended.
func monotonic() (time.Duration, error) {
	const clockMonotonic = 1
	var ts syscall.Timespec
	//nolint:gosec // G103: the kernel fills ts; package syscall has no call for it
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("read monotonic clock: %w", errno)
	}
	return time.Duration(ts.Nano()), nil
}
