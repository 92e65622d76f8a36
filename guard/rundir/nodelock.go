package rundir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// LockNode takes a lock for each name, whatever its run directory is. If another criguard holds one, LockNode
// returns ErrRunning with the holder's run directory. The locks are abstract unix sockets (unix(7)), which
// leave no file and end with the process. Each network namespace has its own, so a criguard in a pod without
// hostNetwork and one on the host do not exclude each other. missed are the names whose address a program
// uses that does not answer or runs without root's or this user's ID.
func (d Dir) LockNode(names ...string) (release func(), missed []string, err error) {
	var held []net.Listener
	release = func() {
		for _, l := range held {
			_ = l.Close()
		}
	}
	for _, name := range names {
		address := lockAddress(name)
		l, err := net.Listen("unix", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			if holder, ok := askHolder(address); ok {
				release()
				return nil, nil, fmt.Errorf("lock the node: %w on it, with the run directory %s", ErrRunning, holder)
			}
			l, err = net.Listen("unix", address) // the holder may have ended meanwhile
		}
		switch {
		case err == nil:
			held = append(held, l)
			go d.tellHolder(l)
		case errors.Is(err, syscall.EADDRINUSE):
			missed = append(missed, name)
		default:
			release()
			return nil, nil, fmt.Errorf("lock the node: %w", err)
		}
	}
	return release, missed, nil
}

// Holder returns the run directory and the process ID of the criguard that holds one of the locks; "" if none
// does.
func Holder(names ...string) string {
	for _, name := range names {
		if holder, ok := askHolder(lockAddress(name)); ok {
			return holder
		}
	}
	return ""
}

// lockAddress returns the abstract address of a lock. It is short enough for a socket, however long the name is.
func lockAddress(name string) string {
	return fmt.Sprintf("@criguard/%x", sha256.Sum256([]byte(name)))[:64]
}

// holderTime limits how long a holder may take to answer.
const holderTime = time.Second

// tellHolder answers every connection with the run directory, until the lock is released.
func (d Dir) tellHolder(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(holderTime) // without descriptors, there is no answer
			continue
		}
		_ = c.SetDeadline(time.Now().Add(holderTime))
		_, _ = fmt.Fprintf(c, "%s (pid %d)\n", d, os.Getpid())
		_ = c.Close()
	}
}

// askHolder returns the run directory of a lock's holder. A holder that ended meanwhile, or that another user
// runs, does not count.
func askHolder(address string) (dir string, counts bool) {
	c, err := net.DialTimeout("unix", address, holderTime)
	if err != nil {
		return "", false
	}
	defer func() { _ = c.Close() }()
	u, ok := c.(*net.UnixConn)
	if !ok {
		return "", false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return "", false
	}
	var cred *syscall.Ucred
	if raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}) != nil || err != nil {
		return "", false
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return "", false
	}
	_ = c.SetDeadline(time.Now().Add(holderTime))
	text, _ := io.ReadAll(io.LimitReader(c, 4<<10))
	if dir = strings.TrimSpace(string(text)); dir == "" {
		dir = fmt.Sprintf("unknown (pid %d)", cred.Pid)
	}
	return dir, true
}
