// Package cri talks to a container runtime over the Container Runtime Interface,
// v1 (k8s.io/cri-api/pkg/apis/runtime/v1/api.proto), and gives plain values.
//
// It owns the connection, a deadline for every call, the translation of the
// runtimes' dialects (containerd 1.6 and later, CRI-O 1.24 and later,
// cri-dockerd) and the matching of image names. Nothing of gRPC or protobuf leaves
// it: an error is one of the sentinels with the runtime's own words behind it,
// and every value a runtime sends is taken as untrusted: what cannot be read is
// absent, what is out of range is unknown.
//
// It never decides, never retries, never caches, never logs, and never asks for
// statistics of all containers at once: one hung shim blocks such a call.
package cri
