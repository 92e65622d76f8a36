package reclaim

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

func TestGlob(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b:c", true}, {"**", "x", true},
		{"a", "a", true}, {"a", "b", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*/pause:*", "registry.k8s.io/pause:3.6", true}, {"*/pause:*", "registry.k8s.io/pauser:3.6", false},
		{"docker.io/rancher/*", "docker.io/rancher/mirrored/x:1", true}, {"docker.io/rancher/*", "docker.io/ranch", false},
		{"*a*b*c", "xaxbxbxc", true}, {"*a*b*c", "xaxbxbxcx", false}, {"a*", "a", true}, {"*a", "ba", true}, {"*ab", "aab", true},
	}
	for _, tt := range tests {
		if got := glob(tt.pattern, tt.s); got != tt.want {
			t.Errorf("glob(%q, %q) = %v", tt.pattern, tt.s, got)
		}
	}
	start := time.Now()
	if glob(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 20000)) {
		t.Error("matched")
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("a hostile pattern took %v", took)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("*a?b*", "xxayb")
	f.Add("**", "")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		got := glob(pattern, s)
		// path.Match agrees if its own special characters do not occur.
		if strings.ContainsAny(pattern, `[]\`) || strings.ContainsAny(pattern+s, "/") || !ascii(pattern+s) {
			return
		}
		want, err := path.Match(pattern, s)
		if err == nil && got != want {
			t.Errorf("glob(%q, %q) = %v", pattern, s, got)
		}
	})
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

func TestMatchesPattern(t *testing.T) {
	t.Parallel()
	img := cri.Image{ID: "sha256:abcdef", Tags: []string{"nginx:1.25"}, Digests: []string{"ghcr.io/x/y@sha256:99"}, UserImage: "my/app"}
	for pattern, want := range map[string]bool{
		"nginx:1.25": true, "nginx": true, "nginx:1.2": false, "docker.io/library/nginx": true, "docker.io/library/nginx:*": true,
		"ghcr.io/x/*": true, "ghcr.io/x/y": true, "docker.io/my/app": true, "my/app": true, "abcdef": true,
		"sha256:abc*": true, "*:2*": false, "": false,
	} {
		if got := MatchesImage(pattern, img); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
	pulledByDigest := cri.Image{ID: "sha256:2", Digests: []string{"docker.io/library/nginx@sha256:99"}}
	for pattern, want := range map[string]bool{"nginx": true, "nginx@sha256:99": true, "nginx:*": false, "*nginx*": true} {
		if got := MatchesImage(pattern, pulledByDigest); got != want {
			t.Errorf("pulled by its digest, %q: %v", pattern, got)
		}
	}
	// Runtimes list full names. People write them as they pull them.
	listed := cri.Image{ID: "sha256:1", Tags: []string{"docker.io/library/redis:7", "docker.io/rancher/shell:2", "ghcr.io/library/etcd:3"}}
	for pattern, want := range map[string]bool{
		"redis:7": true, "redis": true, "redis:*": true, "red*": true, "redis:8*": false, "docker.io*": true, "library/redis": true, "*/redis": true, "rancher/shell:2": true, "rancher/*": true, "shell": false,
		"etcd": false, "library/etcd": false,
	} {
		if got := MatchesImage(pattern, listed); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}
