package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/criguard/criguard/test/lab"
)

// Node is the name of the node. It is also the address at which the API server finds the kubelet.
const Node = "127.0.0.1"

// Setup describes the programs of a cluster and their files, for whatever starts the programs.
type Setup struct {
	Dir         string // of the cluster's files
	KubeletRoot string // such as /var/lib/kubelet
	Programs    lab.Kubernetes

	EtcdPort, ServerPort, KubeletPort int // on the loopback interface

	// KubeletConfig holds the fields of the kubelet's configuration that depend on the kind of node
	// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
	KubeletConfig map[string]any
}

// The certificates that the servers create for themselves.
const (
	serverCert  = "certs/apiserver.crt"
	kubeletCert = "certs/kubelet.crt"
)

// Write writes the files that the programs need, and returns the client of the cluster.
func (s Setup) Write() (*API, error) {
	a := &API{setup: s, token: rand.Text()}
	if err := a.write(); err != nil {
		return nil, fmt.Errorf("set up cluster: %w", err)
	}
	return a, nil
}

func (a *API) write() error {
	if err := os.MkdirAll(a.setup.path("static"), 0o755); err != nil {
		return err
	}
	key, err := signingKey()
	if err != nil {
		return fmt.Errorf("make signing key: %w", err)
	}
	kubeconfig, err := json.Marshal(a.kubeconfig())
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"key": key, "tokens": []byte(a.token + `,admin,1,"system:masters"` + "\n"), "kubeconfig": kubeconfig,
	} {
		if err := os.WriteFile(a.setup.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return a.ConfigureKubelet(nil)
}

// ConfigureKubelet writes the kubelet's configuration: that of the setup, with these fields replaced.
// It takes effect when the kubelet starts.
func (a *API) ConfigureKubelet(fields map[string]any) error {
	config := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": a.setup.path("static"), "address": Node, "port": a.setup.KubeletPort, "healthzPort": 0,
		"authentication":         object{"anonymous": object{"enabled": true}, "webhook": object{"enabled": false}},
		"authorization":          object{"mode": "AlwaysAllow"},
		"makeIPTablesUtilChains": false, "failSwapOn": false,
	}
	maps.Copy(config, a.setup.KubeletConfig)
	maps.Copy(config, fields)
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(a.setup.path("kubelet.json"), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("configure kubelet: %w", err)
	}
	return nil
}

// Etcd returns the command line of etcd.
func (s Setup) Etcd() []string {
	return []string{
		s.Programs.Etcd, "--data-dir", s.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls", s.etcdURL(), "--advertise-client-urls", s.etcdURL(), "--listen-peer-urls", "http://127.0.0.1:0",
	}
}

// APIServer returns the command line of the API server.
func (s Setup) APIServer() []string {
	return []string{
		s.Programs.APIServer, "--etcd-servers", s.etcdURL(), "--secure-port", strconv.Itoa(s.ServerPort),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--cert-dir", s.path("certs"),
		"--token-auth-file", s.path("tokens"), "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default", "--service-account-key-file", s.path("key"),
		"--service-account-signing-key-file", s.path("key"), "--disable-admission-plugins=ServiceAccount",
	}
}

// Kubelet returns the command line of the kubelet.
func (s Setup) Kubelet() []string {
	return []string{
		s.Programs.Kubelet, "--config", s.path("kubelet.json"), "--kubeconfig", s.path("kubeconfig"),
		"--root-dir", s.KubeletRoot, "--cert-dir", s.path("certs"), "--hostname-override", Node,
	}
}

func (s Setup) etcdURL() string    { return fmt.Sprintf("http://127.0.0.1:%d", s.EtcdPort) }
func (s Setup) serverURL() string  { return fmt.Sprintf("https://127.0.0.1:%d", s.ServerPort) }
func (s Setup) kubeletURL() string { return fmt.Sprintf("https://127.0.0.1:%d", s.KubeletPort) }

// path returns the path of a file of the cluster.
func (s Setup) path(name string) string { return filepath.Join(s.Dir, name) }

// signingKey returns a new key for service account tokens.
func signingKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// object is a JSON object.
type object = map[string]any

// kubeconfig returns the kubeconfig of the cluster's administrator.
func (a *API) kubeconfig() object {
	return object{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []object{{"name": "lab", "cluster": object{"server": a.setup.serverURL(), "certificate-authority": a.setup.path(serverCert)}}},
		"users":    []object{{"name": "lab", "user": object{"token": a.token}}},
		"contexts": []object{{"name": "lab", "context": object{"cluster": "lab", "user": "lab"}}},
	}
}
