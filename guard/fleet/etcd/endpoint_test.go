package etcd

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/fleet"
)

func TestParseEndpoint(t *testing.T) {
	for _, tt := range []struct {
		url      string
		insecure bool
		address  string // "" = an error
		cause    string
	}{
		{"https://etcd-1:2379", false, "etcd-1:2379", ""},
		{"https://etcd-1", false, "etcd-1:2379", ""},
		{"https://etcd-1/", false, "etcd-1:2379", ""},
		{"https://[fd00::1]:2379", true, "[fd00::1]:2379", ""},
		{"https://[fd00::1]", true, "[fd00::1]:2379", ""},
		{"http://127.0.0.1:2379", true, "127.0.0.1:2379", ""},
		{"http://[::1]:2379", true, "[::1]:2379", ""},
		{"http://[::ffff:127.0.0.1]:2379", true, "[::ffff:127.0.0.1]:2379", ""},
		{"http://127.0.0.1:2379", false, "", "insecure = true"},
		{"http://etcd-1:2379", true, "", "another host"},
		{"http://localhost:2379", true, "", "another host"},
		{"http://10.0.0.1:2379", true, "", "another host"},
		{"etcd-1:2379", false, "", "https://HOST"},
		{"unix:///run/etcd.sock", true, "", "https://HOST"},
		{"https://user:password@etcd-1:2379", false, "", "https://HOST"},
		{"https://etcd-1:2379/v3", false, "", "https://HOST"},
		{"https://:2379", false, "", "https://HOST"},
		{"https://etcd-1:x", false, "", "https://HOST"},
		{"", false, "", "https://HOST"},
	} {
		e, err := parseEndpoint(tt.url, tt.insecure)
		if tt.address == "" {
			if err == nil || !strings.Contains(err.Error(), tt.cause) {
				t.Errorf("%q: %v, want %s", tt.url, err, tt.cause)
			}
			continue
		}
		if err != nil || e.address != tt.address || e.plain != strings.HasPrefix(tt.url, "http:") {
			t.Errorf("%q: %+v, %v", tt.url, e, err)
		}
	}
}

func TestNewRejects(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a client without endpoints")
	}
	if _, err := New(Options{Endpoints: []string{"https://a", "http://b"}, TLS: fleet.TLS{Insecure: true}}); err == nil || !strings.Contains(err.Error(), "http://b") {
		t.Errorf("got %v", err)
	}
}
