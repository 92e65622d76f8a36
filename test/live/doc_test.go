// Package live tests the real criguard, built with the race detector, against a real
// containerd that it must live with: one that is killed, hangs or comes late, with
// pods that leak, ignore SIGTERM, come back, or fill the disk.
//
// Memory thresholds are set relative to what `criguard status` shows at the moment.
// Most are on the cgroup of all pods, which has a limit here, so that what else runs
// on the machine has no part in it.
package live_test
