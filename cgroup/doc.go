// Package cgroup is criguard's interface to the kernel: memory cgroups v1 and v2, PSI, meminfo, tasks,
// filesystems, the boot clock, killing a cgroup, and notifications of changes.
//
// It reads and reports. It never decides, never logs and never sleeps longer than documented. It knows
// no policies, and pods only as cgroups: a cgroup is a path such as "/kubepods/pod1", which is the same in
// every hierarchy. [ErrUnsupported] means that the node lacks a feature, [ErrGone] that a cgroup was
// removed. A missing number is −1, never 0. [Node] and [Tracker], which the decision loop reads on
// every pass, keep their descriptors open and do not allocate.
//
// A wake-up is a hint and carries no reading: the caller must read again.
//
// It follows the kernel's Documentation/admin-guide/cgroup-v1/memory.rst,
// Documentation/admin-guide/cgroup-v2.rst and Documentation/accounting/psi.rst, and proc(5),
// cgroups(7), pidfd_open(2) and epoll(7).
package cgroup
