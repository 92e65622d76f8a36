// Package node is the kernel side of the node: it reads the signals and the pods' usage from /proc and the
// cgroups, finds pods that the runtime has not listed, and wakes the loop when the kernel reports a change.
//
// A Node implements eviction.Kernel. It never calls the container runtime, never stops a pod, and removes
// nothing but empty pod cgroups. It follows the kernel's documentation of cgroups v1 and v2, PSI and inotify,
// and the kubelet's names of pod cgroups (pkg/kubelet/cm).
package node
