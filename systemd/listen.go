package systemd

import (
	"errors"
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// ErrNoSocket reports that systemd passed no socket.
var ErrNoSocket = errors.New("systemd passed no socket")

// Listener returns the socket that systemd passed to the service (sd_listen_fds(3)). It removes the variables of the
// environment that announce it.
func Listener() (net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("open passed socket: %w", err)
	}
	if len(all) == 0 {
		return nil, ErrNoSocket
	}
	if len(all) > 1 || all[0] == nil {
		for _, l := range all {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
		return nil, errors.Join(fmt.Errorf("open passed socket: got %d, want one that listens", len(all)), err)
	}
	return all[0], nil
}
