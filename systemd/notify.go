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

// Notifier tells the service manager how the service fares, as sd_notify(3)
// says. The zero value, and a Notifier made where no service manager asked to be
// told, sends nothing and returns no error. It may be used by several goroutines.
type Notifier struct {
	mu       sync.Mutex // never held while a busy service manager is waited for
	socket   *datagrams // nil: nobody asked to be told
	status   string     // the last one that arrived
	interval time.Duration
	fed      time.Duration // when the watchdog was fed last, as the caller's clock says
	everFed  bool
}

// Bounds of a notification.
const (
	// maxStatus is the most bytes of a status line that are sent: systemctl
	// shows it on one.
	maxStatus = 512
	// statePatience is how long a change of state may wait for a busy service
	// manager. It is worth waiting for: a lost READY=1 is a failed start.
	statePatience = time.Second
	// feeds is how often the watchdog is fed within its interval, at most.
	feeds = 4
)

// NewNotifier makes the Notifier of this process from NOTIFY_SOCKET,
// WATCHDOG_USEC and WATCHDOG_PID. The Notifier can be used beside an error, too,
// and then leaves out what the environment says wrongly.
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

// WatchdogInterval is how long the service manager waits for a sign of life
// before it kills the service; 0 means for ever. The decision loop comes by at
// least twice in that time, or the service is as good as hung.
func (n *Notifier) WatchdogInterval() time.Duration { return n.interval }

// Ready says that the service has started, or has finished reloading.
// It waits up to a second for a busy service manager.
func (n *Notifier) Ready(status string) error {
	return n.state(daemon.SdNotifyReady, status)
}

// Stopping says that the service is shutting down.
// It waits up to a second for a busy service manager.
func (n *Notifier) Stopping(status string) error {
	return n.state(daemon.SdNotifyStopping, status)
}

// Reloading says that the service reads its configuration anew; Ready ends it,
// whether the new configuration was taken or refused. It carries the time in the
// same datagram, without which Type=notify-reload (systemd 253) does not count
// it. It waits up to a second for a busy service manager.
func (n *Notifier) Reloading() error {
	now, err := monotonic()
	if err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return n.state(daemon.SdNotifyReloading+"\nMONOTONIC_USEC="+strconv.FormatInt(now.Microseconds(), 10), "")
}

// Status sets the line that `systemctl status` shows. A line that was sent
// already is not sent again. It never waits.
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

// Watchdog is the sign of life: call it from the decision loop, after a pass, with
// the time since boot. It may be called as often as the loop runs; the service
// manager hears of it at most four times in its interval. It never waits.
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

// Close ends the notifications: later ones are not sent.
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

// state tells a change of state, again and again while the service manager is busy.
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

// tell tells a state once.
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

// statusLine makes one line of s: a pod's name in it cannot add an assignment of
// its own, and the service manager refuses what is not UTF-8.
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

// cut shortens s to at most limit bytes, at the border of a character, and shows
// that it did. limit is at least the length of the mark.
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

// monotonic is CLOCK_MONOTONIC, the service manager's clock: unlike the time
// since boot it stands still while the machine sleeps.
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
