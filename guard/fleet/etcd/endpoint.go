package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/criguard/criguard/guard/fleet"
)

// endpoint is the address of a member of etcd.
type endpoint struct {
	url, host, address string
	plain              bool
}

// parseEndpoint parses a URL such as https://etcd-1:2379. http needs insecure and a loopback address.
func parseEndpoint(text string, insecure bool) (endpoint, error) {
	u, err := url.Parse(text)
	if err != nil {
		return endpoint{}, errors.New("not a URL (hint: https://HOST:2379)")
	}
	e := endpoint{url: text, host: u.Hostname(), address: u.Host, plain: u.Scheme == "http"}
	switch {
	case u.Scheme != "https" && u.Scheme != "http" || e.host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return endpoint{}, errors.New("not the URL of an etcd (hint: https://HOST:2379)")
	case e.plain && !insecure:
		return endpoint{}, errors.New("plain text (hint: https; http needs insecure = true and a loopback address)")
	case e.plain && !fleet.IsLoopback(e.host):
		return endpoint{}, errors.New("plain text to another host (hint: https; http is for loopback addresses only)")
	}
	if u.Port() == "" {
		e.address = net.JoinHostPort(e.host, "2379")
	}
	return e, nil
}

// bufferSize is the size of each connection buffer. gRPC's default is 32 KiB each way.
const bufferSize = 8 << 10

// maxMessage exceeds a list of 10,000 members' keys.
const maxMessage = 8 << 20

// connect prepares a connection, which the first call opens.
func (e endpoint) connect(files fleet.TLS) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if !e.plain {
		config, err := tlsConfig(files)
		if err != nil {
			return nil, fmt.Errorf("%w: %w (hint: this user must be able to read the files of [tls])", ErrCertificate, err)
		}
		creds = alertCredentials{credentials.NewTLS(config)}
	}
	// passthrough and a dialer of its own: gRPC would ask a proxy from the environment.
	conn, err := grpc.NewClient("passthrough:///"+e.address,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithIdleTimeout(0), // its owner closes it
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.ForceCodec(codec{})),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrUnreachable, clean(err.Error()))
	}
	return conn, nil
}

// tlsConfig reads the files for each connection, so that renewed certificates need no restart.
func tlsConfig(files fleet.TLS) (*tls.Config, error) {
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read certificate authorities: no certificate in %s", files.CA)
	}
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("read certificate and key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{cert}}, nil
}

// Expiry returns when a client's certificate expires, and when the last of its authorities does.
func Expiry(files fleet.TLS) (cert, ca time.Time, err error) {
	config, err := tlsConfig(files)
	if err != nil {
		return cert, ca, err
	}
	text, err := os.ReadFile(files.CA) // a pool does not return its certificates
	if err != nil {
		return cert, ca, fmt.Errorf("read certificate authorities: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil && authority.NotAfter.After(ca) {
			ca = authority.NotAfter
		}
	}
	return config.Certificates[0].Leaf.NotAfter, ca, nil
}
