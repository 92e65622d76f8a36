// Package certs issues certificates for etcd and its clients in tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// Authority issues certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority that keeps its files in a directory.
func New(dir string) (*Authority, error) {
	a := &Authority{dir: dir}
	_, err := a.Issue("ca", 365*24*time.Hour)
	return a, err
}

// CA returns the path of the authority's own certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.crt") }

// Issue returns the files of a certificate for a name, for both clients and servers on loopback. Only the owner may read
// them.
func (a *Authority) Issue(name string, validity time.Duration) (fleet.TLS, error) {
	files, err := a.issue(name, validity)
	if err != nil {
		return fleet.TLS{}, fmt.Errorf("issue certificate %s: %w", name, err)
	}
	return files, nil
}

// Load returns a certificate that was issued, and the authority that issued it.
func Load(files fleet.TLS) (tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return cert, nil, fmt.Errorf("load certificate: %w", err)
	}
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		return cert, nil, fmt.Errorf("load authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return cert, pool, nil
}

func (a *Authority) issue(name string, validity time.Duration) (fleet.TLS, error) {
	files := fleet.TLS{CA: a.CA(), Cert: filepath.Join(a.dir, name+".crt"), Key: filepath.Join(a.dir, name+".key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return files, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return files, err
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return files, err
		}
		a.key = key
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return files, err
	}
	for path, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: der},
		files.Key:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			return files, err
		}
	}
	return files, nil
}
