// Package live tests the real criguard, built with the race detector, against a real containerd
// that is killed, hangs or starts late, with pods that leak, ignore SIGTERM, come back, or fill the
// disk.
//
// The machine may do other work. Memory thresholds therefore apply to the cgroup of all pods, which has a
// limit here and is not charged for anything else on the machine. Only TestOutsideHog, which is about the
// node's own memory, sets a threshold on it.
package live_test
