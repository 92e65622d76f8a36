// Package lab runs a real containerd with real pods on a plain machine, for tests and for the demo.
//
// It owns everything it makes: a directory below /var/lib/criguard-lab (or [Options].Dir), the
// mounts below that directory, one cgroup per hierarchy that holds containerd, its shims and all
// pods, and the processes in that cgroup. [Lab.Close] removes all of it, and [Sweep] does the same
// for labs whose owner died. The programs come from Debian's packages and from the Go module proxy,
// are unpacked below a cache directory (see [CacheDir]) and are never installed on the system.
//
// It only signals a process that it has just found in the lab's own cgroup, never writes to another
// program's cgroup, and never removes a directory that still has a mount below it.
//
// Pods get what a kubelet gives them: the cgroup parent of their QoS class (cgroupfs driver),
// oom_score_adj, the io.kubernetes.* labels and annotations, and the mounts below the kubelet's
// root directory. They share the host's network, so no CNI is needed. For oom_score_adj see
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
package lab
