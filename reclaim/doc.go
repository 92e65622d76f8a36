// Package reclaim frees what is no longer needed (dead containers, dead sandboxes, orphaned logs and
// unused images, in this order) and stops a sandbox.
//
// Selection is separate from removal. Pure functions over listed values select what to remove and give
// each object a verdict with a reason, so that a dry run, a listing and the removal follow the same
// rules. A run checks each object again right before it removes it, measures afterwards, and ends as
// soon as the target is met. The rules are those of the kubelet's garbage collectors
// (pkg/kubelet/container, kuberuntime_gc.go and images/image_gc_manager.go). Nodes without a kube API
// need two more: the image ledger remembers images across restarts, power cuts and clock jumps, and an
// image that cannot be pulled again stays.
//
// A stop escalates from the grace period to the runtime's kill and then the kernel's kill. It trusts
// only the container cgroups. In parallel it waits for the runtime's confirmation, which may lag (CRI,
// runtime/v1 api.proto; the kernel's cgroup v1 cgroup.procs and v2 cgroup.kill and cgroup.events).
//
// The package never decides whether to reclaim or which pod to stop, never touches a pod's own cgroup,
// never removes anything that runs, never follows a symbolic link out of the log directory, never logs
// and never panics: every failure is a value in a report.
package reclaim
