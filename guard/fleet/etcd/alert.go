package etcd

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// alertCredentials report why a server rejects the node's certificate. In TLS 1.3 the client's handshake ends before the
// server has checked it (RFC 8446, 4.4.2.4), so the first write may fail with "broken pipe" before the alert was read.
type alertCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c alertCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return alertConn{conn}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (c alertCredentials) Clone() credentials.TransportCredentials {
	return alertCredentials{c.TransportCredentials.Clone()}
}

type alertConn struct{ net.Conn }

// alertTimeout limits the wait for an alert, which comes with the end of the connection.
const alertTimeout = 100 * time.Millisecond

// Write returns the alert that the server has sent, in place of the error that the connection has ended.
func (c alertConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil {
		return n, nil
	}
	if c.SetReadDeadline(time.Now().Add(alertTimeout)) == nil {
		// A read after an alert returns it again, so this one may be the transport's second.
		if _, alert := c.Read(make([]byte, 1)); alert != nil && strings.Contains(alert.Error(), "tls: ") {
			return n, alert
		}
	}
	return n, err
}
