// Command node tests criguard on whole virtual machines, each with its own kernel, systemd and
// containerd, the hardened unit, and memory, disks, inodes and tasks that really run out.
//
// Each profile (cgroup version, runtime, size) boots once under qemu, is set up as a user would do
// it, and is frozen to a file. Each scenario thaws a copy of its own, so scenarios are isolated and
// start within a second. The disk is discarded with the copy.
//
// The scenarios are in package scenario, which runs inside the machine; command guest is the agent
// that runs them. mmdebstrap builds the root filesystem once, and the lab's cache keeps it. qemu
// emulates the CPU (TCG); KVM is neither needed nor used.
//
//	go run ./test/node                 all scenarios
//	go run ./test/node -run memory     those whose name matches
//	go run ./test/node -list           list the scenarios
package main
