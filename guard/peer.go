package guard

import (
	"net"
	"net/http"
	"syscall"
)

// peerOf asks the kernel who sent a request over a unix socket (SO_PEERCRED,
// unix(7)); false where it does not say.
func peerOf(r *http.Request) (Peer, bool) {
	g, ok := r.Context().Value(guestKey{}).(*guest)
	if !ok {
		return Peer{}, false
	}
	u, ok := g.Conn.(*net.UnixConn)
	if !ok {
		return Peer{}, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, false
	}
	var cred *syscall.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if ctlErr != nil || err != nil {
		return Peer{}, false
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, true
}
