package etcd

import (
	"crypto/tls"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/criguard/criguard/test/certs"
)

// Files that are replaced while the client runs count from the next connection on, the one in use goes on, and a pair of which
// only one file is new yet is an error for as long as that lasts.
func TestRotatedFiles(t *testing.T) {
	issue := func(dir string) (*certs.Authority, *tls.Config) {
		a, err := certs.New(dir)
		must(t, err)
		files, err := a.Issue("etcd", time.Hour)
		must(t, err)
		cert, pool, err := certs.Load(files)
		must(t, err)
		return a, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	}
	dir := t.TempDir()
	a, config := issue(dir)
	var server atomic.Pointer[tls.Config]
	server.Store(config)
	files, err := a.Issue("node", time.Hour)
	must(t, err)
	m := newMemory()
	c := connect(t, m, m, Options{Node: "n", TLS: files, Now: func() time.Duration { return m.now }},
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion:         tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server.Load(), nil },
		})))
	report := func() error { return c.Report(t.Context(), State{Digest: "d1"}) }
	must(t, report())

	old, err := os.ReadFile(files.Key)
	must(t, err)
	_, err = a.Issue("node", time.Hour)
	must(t, err)
	renewed, err := os.ReadFile(files.Key)
	must(t, err)
	must(t, os.WriteFile(files.Key, old, 0o600))
	must(t, report()) // the connection in use
	c.Close()
	if err := report(); !errors.Is(err, ErrCertificate) {
		t.Errorf("with one of two files: %v", err)
	}
	must(t, os.WriteFile(files.Key, renewed, 0o600))
	must(t, report())

	// Another authority for all, in the same files.
	b, config := issue(dir)
	server.Store(config)
	must(t, report())
	c.Close()
	if err := report(); !errors.Is(err, ErrCertificate) {
		t.Errorf("with a certificate of the old authority: %v", err)
	}
	_, err = b.Issue("node", time.Hour)
	must(t, err)
	must(t, report())
}
