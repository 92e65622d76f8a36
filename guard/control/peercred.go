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

// peerOf returns the peer of a request.
func peerOf(r *http.Request) (api.Peer, error) {
	err := statusError{http.StatusForbidden, fmt.Errorf("%w: the kernel does not name the client", api.ErrRefused)}
	c, _ := r.Context().Value(connKey{}).(*clientConn)
	if c == nil {
		return api.Peer{}, err
	}
	if p, ok := peerOfConn(c.Conn); ok {
		return p, nil
	}
	return api.Peer{}, err
}

// peerOfConn returns the peer of a connection over a unix socket, as the kernel reports it (SO_PEERCRED, unix(7)).
func peerOfConn(c net.Conn) (peer api.Peer, ok bool) {
	if p, ok := c.(Peered); ok {
		return p.Peer(), true
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return peer, false
	}
	var cred *syscall.Ucred
	if raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}) != nil || err != nil {
		return peer, false
	}
	return api.Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, true
}
