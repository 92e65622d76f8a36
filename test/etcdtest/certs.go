package etcdtest

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/test/certs"
)

// Authority issues certificates.
type Authority struct{ authority *certs.Authority }

// NewAuthority returns an authority that lasts as long as the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := certs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{a}
}

// CA returns the path of the authority's own certificate.
func (a *Authority) CA() string { return a.authority.CA() }

// Issue returns the files of a certificate for a name, for both clients and servers on loopback.
func (a *Authority) Issue(t testing.TB, name string) fleet.TLS {
	t.Helper()
	return a.issue(t, name, time.Hour)
}

// IssueExpired returns the files of a certificate that has expired.
func (a *Authority) IssueExpired(t testing.TB, name string) fleet.TLS {
	t.Helper()
	return a.issue(t, name, -time.Minute)
}

func (a *Authority) issue(t testing.TB, name string, validity time.Duration) fleet.TLS {
	t.Helper()
	files, err := a.authority.Issue(name, validity)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// config returns a client's TLS configuration with these files.
func config(t testing.TB, files fleet.TLS) *tls.Config {
	t.Helper()
	cert, pool, err := certs.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	// A test may start an etcd that offers no more.
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{cert}}
}
