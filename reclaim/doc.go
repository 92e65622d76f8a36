// Package reclaim acts: it frees what nobody needs (dead containers, dead
// sandboxes, orphaned logs, unused images, in this order) and stops one sandbox.
//
// Choosing is apart from acting. What may go is chosen by pure functions over
// listed values, and each thing gets a verdict with a reason, so that a dry run, a
// listing and the removal itself follow the very same rules. Acting looks again
// right before each removal, measures after it, and ends as soon as the target is
// met. The rules are the kubelet's garbage collectors' (pkg/kubelet/container,
// kuberuntime_gc.go and images/image_gc_manager.go), with what nodes without a
// kube API need on top: the image ledger remembers across restarts, power cuts
// and clock jumps, and an image that cannot be pulled again stays.
//
// A stop goes down a ladder (grace period, the runtime's kill, the kernel's kill)
// and believes the container cgroups alone: the runtime's book-keeping is chased
// beside it and may lag (CRI, runtime/v1 api.proto; the kernel's cgroup v1
// cgroup.procs and v2 cgroup.kill and cgroup.events).
//
// It never decides whether to reclaim or whom to stop, never touches a pod's own
// cgroup, never removes what runs, never follows a symbolic link out of the log
// directory, never logs, and never panics: what goes wrong is a value in a report.
package reclaim
