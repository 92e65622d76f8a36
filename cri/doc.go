// Package cri talks to a container runtime over the Container Runtime Interface, v1
// (k8s.io/cri-api/pkg/apis/runtime/v1/api.proto), and returns plain values.
//
// The package owns the connection, sets a deadline for every call, translates the dialects of the
// runtimes (containerd 1.6 and later, CRI-O 1.24 and later, cri-dockerd) and matches image names. It
// exposes neither gRPC nor protobuf. Every error is one of the sentinels, followed by the runtime's own
// message. The package trusts no value from a runtime: an unreadable value counts as absent, one out of
// range as unknown.
//
// It never logs, and decides nothing about pods or images. A [Client] neither retries nor caches; [Connector]
// finds the runtime, reconnects, and remembers which endpoints to skip. The package never requests the
// statistics of all containers at once: one hung shim blocks such a call.
package cri
