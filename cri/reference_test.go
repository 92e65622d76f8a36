package cri

import "testing"

func TestParseReference(t *testing.T) {
	const hex = "4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1"
	for _, tc := range []struct{ in, want string }{
		{"nginx", "docker.io/library/nginx:latest"},
		{"nginx:1.27", "docker.io/library/nginx:1.27"},
		{"library/nginx", "docker.io/library/nginx:latest"},
		{"docker.io/nginx", "docker.io/library/nginx:latest"},
		{"index.docker.io/nginx", "docker.io/library/nginx:latest"},
		{"index.docker.io/rancher/pause:3.6", "docker.io/rancher/pause:3.6"},
		{"rancher/pause:3.6", "docker.io/rancher/pause:3.6"},
		{"registry.local/app", "registry.local/app:latest"},
		{"registry.local:5000/app", "registry.local:5000/app:latest"},
		{"registry.local:5000/team/app:2", "registry.local:5000/team/app:2"},
		{"localhost/app:1", "localhost/app:1"},
		{"localhost:5000/app", "localhost:5000/app:latest"},
		{"MyRegistry/app", "MyRegistry/app:latest"},
		{"nginx@sha256:" + hex, "docker.io/library/nginx@sha256:" + hex},
		{"nginx:1@sha256:" + hex, "docker.io/library/nginx:1@sha256:" + hex},
		{"registry.local:5000/app@sha256:" + hex, "registry.local:5000/app@sha256:" + hex},
		{"docker-pullable://nginx@sha256:" + hex, "docker.io/library/nginx@sha256:" + hex},
		{"docker://sha256:" + hex, "docker.io/library/sha256:" + hex}, // an id, not a name: it is matched as an id
	} {
		r := ParseReference(tc.in)
		if got := r.String(); got != tc.want {
			t.Errorf("ParseReference(%q) = %q, want %q", tc.in, got, tc.want)
		}
		if again := ParseReference(r.String()).String(); again != r.String() {
			t.Errorf("%q is read again as %q", r.String(), again)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	for _, seed := range []string{"nginx", "a/b:c@sha256:d", "registry:5000/x", "@", ":", "/", "://", "a@b@c", "docker-pullable://x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := ParseReference(s)
		if r.Registry == "" && r.Short || r.Tag == "" && r.Digest == "" {
			t.Errorf("ParseReference(%q) = %+v", s, r)
		}
		m := NewImageMatcher([]Image{{ID: "sha256:abc", Tags: []string{s}, Digests: []string{s}}, {ID: s}})
		for _, i := range m.Match(s) {
			if i < 0 || i > 1 {
				t.Errorf("Match(%q) gives %d", s, i)
			}
		}
	})
}

func FuzzCrictl(f *testing.F) {
	for _, seed := range []string{"runtime-endpoint: unix:///a", `runtime-endpoint: "a" # b`, "runtime-endpoint:", "runtime-endpoint: '", "\ufeff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		endpoint := parseCrictl(text)
		if c, err := Dial(endpoint, 0); err == nil {
			_ = c.Close()
		}
	})
}
