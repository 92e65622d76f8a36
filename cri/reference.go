package cri

import "strings"

// Image references follow distribution/reference, as docker, containerd and the
// kubelet read them: "nginx" is docker.io/library/nginx:latest.

const (
	defaultRegistry = "docker.io"
	legacyRegistry  = "index.docker.io"
	officialPrefix  = "library/"
	localRegistry   = "localhost" // where podman and buildah put what they build
	defaultTag      = "latest"
)

// Reference is an image reference taken apart.
type Reference struct {
	Registry   string // "docker.io", "registry.local:5000"
	Repository string // "library/nginx"
	Tag        string // "" with a digest and no tag
	Digest     string // "sha256:<hex>"; "" = none
	// Short is set when the reference named no registry: a runtime with short-name
	// resolution (CRI-O) may have found it elsewhere than at docker.io.
	Short bool
}

// ParseReference takes a reference apart. It judges nothing: what is no reference
// gives parts that match no image. "docker-pullable://" and the like in front, as
// cri-dockerd has them, are dropped.
func ParseReference(s string) Reference {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	var r Reference
	s, r.Digest, _ = strings.Cut(s, "@")
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.Contains(s[i:], "/") {
		s, r.Tag = s[:i], s[i+1:]
	}
	if r.Tag == "" && r.Digest == "" {
		r.Tag = defaultTag
	}
	host, rest, ok := strings.Cut(s, "/")
	if ok && isRegistry(host) {
		r.Registry, r.Repository = host, rest
	} else {
		r.Registry, r.Repository, r.Short = defaultRegistry, s, true
	}
	if r.Registry == legacyRegistry {
		r.Registry = defaultRegistry
	}
	if r.Registry == defaultRegistry && !strings.Contains(r.Repository, "/") {
		r.Repository = officialPrefix + r.Repository
	}
	return r
}

// String is the whole name: "docker.io/library/nginx:latest".
func (r Reference) String() string {
	s := r.Registry + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// isRegistry tells a registry's name from the first part of a repository's.
func isRegistry(s string) bool {
	return s == localRegistry || strings.ContainsAny(s, ".:") || s != strings.ToLower(s)
}

// TrimID drops the "sha256:" that containerd puts before an image's id and CRI-O
// does not.
func TrimID(id string) string { return strings.TrimPrefix(id, "sha256:") }

// isHex reports whether s could be an image's id or the beginning of one.
func isHex(s string) bool {
	const shortest, longest = 3, 128
	if len(s) < shortest || len(s) > longest {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
