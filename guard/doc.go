// Package guard joins the leaves into a node guard: it observes through package
// cgroup, decides through package policy, relieves and stops through package
// reclaim, and tells about it through package systemd.
//
// It owns the pass (observe, decide, relieve, stop, record), the configuration,
// the warm inventory of pods, the history and the control socket. It translates
// between the leaves, which do not know each other: a fact about the kubelet
// lives in policy, one about the kernel in cgroup, one about a runtime in cri.
//
// The pass never waits: reclaiming and stopping are jobs beside the loop, and a
// pass looks at what has become of them. The same pass runs in the service, in
// `criguard rank` without a service, and over a trace in `criguard simulate`.
package guard
