// Package cgroup is the one door to the kernel: memory cgroups v1 and v2, PSI,
// meminfo, tasks, filesystems, the boot clock, killing a cgroup, and what wakes
// the guard when any of them changes.
//
// It reads and says what it read. It never decides, never logs, never sleeps
// longer than it says, and knows nothing of pods or policies: a cgroup is a path
// below its hierarchy, the same in every hierarchy, such as "/kubepods/pod1". What the
// node does not have is [ErrUnsupported], a cgroup that was removed is [ErrGone],
// and a number that is not there is −1 and never 0. What the decision loop reads
// on every pass ([Node], [Tracker]) keeps its descriptors open and allocates nothing.
//
// A wake is a hint and never a reading: whoever is woken reads afresh.
//
// It follows the kernel's Documentation/admin-guide/cgroup-v1/memory.rst,
// Documentation/admin-guide/cgroup-v2.rst and Documentation/accounting/psi.rst,
// and proc(5), cgroups(7), pidfd_open(2) and epoll(7).
package cgroup
