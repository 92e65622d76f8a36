package cri

import (
	"context"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is a runtime's report of its version.
type Version struct {
	RuntimeName    string // "containerd", "cri-o", "docker"
	RuntimeVersion string // "1.6.20~ds1", "2.4.2+unknown", "v2.0.5-k3s1": as reported
	APIVersion     string // of the CRI: "v1"
}

// String returns a human-readable form: "containerd 1.6.20~ds1".
func (v Version) String() string {
	return strings.TrimSpace(v.RuntimeName + " " + v.RuntimeVersion)
}

// IsContainerd reports whether the runtime is containerd, including the builds of k3s and others.
func (v Version) IsContainerd() bool { return strings.EqualFold(v.RuntimeName, "containerd") }

// IsCRIO reports whether the runtime is CRI-O.
func (v Version) IsCRIO() bool {
	return strings.EqualFold(v.RuntimeName, "cri-o") || strings.EqualFold(v.RuntimeName, "crio")
}

// Release returns the first two numbers of the runtime's version; ok is false if it does not begin with
// two numbers.
func (v Version) Release() (major, minor int, ok bool) {
	first, rest, found := strings.Cut(strings.TrimPrefix(v.RuntimeVersion, "v"), ".")
	if !found {
		return 0, 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	maj, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return 0, 0, false
	}
	mnr, err := strconv.ParseUint(rest[:end], 10, 16)
	if err != nil {
		return 0, 0, false
	}
	return int(maj), int(mnr), true
}

// MountsImages reports whether a container may have images as volumes. containerd supports them since
// 2.1, CRI-O since 1.31. Other runtimes, and versions that cannot be parsed, count as supporting them.
func (v Version) MountsImages() bool {
	major, minor, ok := v.Release()
	switch {
	case !ok:
		return true
	case v.IsContainerd():
		return major > 2 || major == 2 && minor >= 1
	case v.IsCRIO():
		return major > 1 || major == 1 && minor >= 31
	default:
		return true
	}
}

// EventsShareable reports whether a subscriber to events leaves them to other subscribers. containerd
// 1.7 and CRI-O 1.26 and 1.27 send each event to only one subscriber, so criguard would take events
// away from a kubelet. Older releases have no events. A version that cannot be parsed counts as not
// shareable.
func (v Version) EventsShareable() bool {
	major, minor, ok := v.Release()
	switch {
	case !ok:
		return false
	case v.IsContainerd():
		return major >= 2
	case v.IsCRIO():
		return major > 1 || major == 1 && minor >= 28
	}
	return false
}

// Version asks the runtime for its name and version. It is the cheapest call, and the one to probe an
// endpoint with.
func (c *Client) Version(ctx context.Context) (Version, error) {
	resp, err := call(ctx, c.timeout, "ask version", c.runtime.Version, &runtimeapi.VersionRequest{})
	if err != nil {
		return Version{}, err
	}
	return Version{
		RuntimeName:    resp.GetRuntimeName(),
		RuntimeVersion: resp.GetRuntimeVersion(),
		APIVersion:     resp.GetRuntimeApiVersion(),
	}, nil
}
