package control

import (
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/criguard/criguard/guard/api"
)

// peerOf returns the peer of a request over a unix socket, as the kernel reports it (SO_PEERCRED, unix(7)).
func peerOf(r *http.Request) (api.Peer, error) {
	err := statusError{http.StatusForbidden, fmt.Errorf("%w: the kernel does not name the client", api.ErrRefused)}
	c, _ := r.Context().Value(connKey{}).(*clientConn)
	if c == nil {
		return api.Peer{}, err
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
