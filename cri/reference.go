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
	r.Registry, r.Repository, r.Short = complete(s)
	return r
}

// CompleteName returns a name, or a pattern of names, with the registry and the user that it leaves out: "nginx:*" is
// "docker.io/library/nginx:*".
func CompleteName(s string) string {
	registry, repository, _ := complete(s)
	return registry + "/" + repository
}

// complete splits a name. short is set if it names no registry.
func complete(s string) (registry, repository string, short bool) {
	host, rest, ok := strings.Cut(s, "/")
	if ok && isRegistry(host) {
		registry, repository = host, rest
	} else {
		registry, repository, short = defaultRegistry, s, true
	}
	if registry == legacyRegistry {
		registry = defaultRegistry
	}
	if registry == defaultRegistry && !strings.Contains(repository, "/") {
		repository = officialPrefix + repository
	}
	return registry, repository, short
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
