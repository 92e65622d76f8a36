// Command node proves criguard on whole virtual machines: a kernel, systemd and containerd of their own, the unit with its hardening, and
// memory, disks, inodes and tasks that really run out.
//
// Each profile (cgroup version, runtime, size) is booted once under qemu, set up as a user would, and frozen to a file. Each scenario
// thaws a copy of its own, so scenarios never see each other and begin within a second. The disk is thrown away with the copy.
//
// The scenarios are in package scenario, which runs inside of the machine; command guest is the agent that carries them out. The root
// filesystem is made once by mmdebstrap and kept in the lab's cache. Emulation is qemu's own (TCG): KVM is not needed and not used.
//
//	go run ./test/node                 all scenarios
//	go run ./test/node -run memory     those whose name matches
//	go run ./test/node -list           what there is
package main
