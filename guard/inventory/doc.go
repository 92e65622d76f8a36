// Package inventory keeps the list of pods that run on this node. A Lister lists them over the CRI, derives
// each pod's QoS class, memory request and cgroup from the runtime and the cgroup tree, and applies the
// configuration's rules (priority, protection, storage limit).
//
// The package does not measure usage, rank pods or stop them. While the runtime does not answer, the
// inventory keeps the last good pods and carries the error.
package inventory
