package control

import (
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/criguard/criguard/guard/api"
)

// Peered is a connection that knows its peer by itself, such as a pipe within a process.
type Peered interface {
	Peer() api.Peer
}

// peerOf returns the peer of a request over a unix socket, as the kernel reports it (SO_PEERCRED, unix(7)).
func peerOf(r *http.Request) (api.Peer, error) {
	err := statusError{http.StatusForbidden, fmt.Errorf("%w: the kernel does not name the client", api.ErrRefused)}
	c, _ := r.Context().Value(connKey{}).(*clientConn)
	if c == nil {
		return api.Peer{}, err
	}
	if p, ok := c.Conn.(Peered); ok {
		return p.Peer(), nil
	}
	u, ok := c.Conn.(*net.UnixConn)
	if !ok {
		return api.Peer{}, err
	}
	raw, rawErr := u.SyscallConn()
	if rawErr != nil {
		return api.Peer{}, err
	}
	var cred *syscall.Ucred
	if raw.Control(func(fd uintptr) {
		cred, rawErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}) != nil || rawErr != nil {
		return api.Peer{}, err
	}
	return api.Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
