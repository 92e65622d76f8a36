// Package lab runs a real containerd with real pods on a plain machine, for tests and for the demo.
//
// It owns everything it makes: a directory below /var/lib/criguard-lab (or [Options].Dir), the mounts below that directory, one
// cgroup per hierarchy that holds containerd, its shims and all pods, and the processes in that cgroup. [Lab.Close] takes all of it
// away, and [Sweep] does the same for labs whose owner died. The programs come from Debian's packages and from the Go module proxy,
// are unpacked below a cache directory (see [CacheDir]) and are never installed on the system.
//
// It never signals a process that it did not just find in the lab's own cgroup, never writes to a cgroup of somebody else, and never
// removes a directory below which something is still mounted.
//
// Pods are given what a kubelet gives them: the cgroup parent of their QoS class (cgroupfs driver), oom_score_adj
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior), the io.kubernetes.*
// labels and annotations, and the mounts below the kubelet's root directory. They share the host's network, so no CNI is needed.
package lab
