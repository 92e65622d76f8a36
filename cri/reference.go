package cri

import "strings"

// Image references follow distribution/reference, as docker, containerd and the
// kubelet read them: "nginx" is docker.io/library/nginx:latest.

const (
	defaultRegistry = "docker.io"
	legacyRegistry  = "index.docker.io"
	officialPrefix  = "library/"
	localRegistry   = "localhost" // the registry under which podman and buildah store the images they build
	defaultTag      = "latest"
)

// Reference is a parsed image reference.
type Reference struct {
	Registry   string // "docker.io", "registry.local:5000"
	Repository string // "library/nginx"
	Tag        string // "" if there is a digest but no tag
	Digest     string // "sha256:<hex>"; "" = none
	// Short is set if the reference named no registry: a runtime with short-name resolution (CRI-O) may
	// have found the image in a registry other than docker.io.
	Short bool
}

// ParseReference parses an image reference. It does not validate: the parts of an invalid reference
// match no image. It drops a leading "docker-pullable://" and the like, which cri-dockerd adds.
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

// String returns the complete name: "docker.io/library/nginx:latest".
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

// isRegistry reports whether the first part of a name is a registry, not part of the repository.
func isRegistry(s string) bool {
	return s == localRegistry || strings.ContainsAny(s, ".:") || s != strings.ToLower(s)
}

// TrimID removes the "sha256:" that containerd, unlike CRI-O, puts before an image's id.
func TrimID(id string) string { return strings.TrimPrefix(id, "sha256:") }

// isHex reports whether s could be an image's id or a prefix of one.
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
