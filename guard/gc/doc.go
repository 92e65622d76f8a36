// Package gc removes what no pod needs: dead containers and sandboxes, orphaned logs, unused images and empty
// pod cgroups. It does so periodically, under pressure until a target is met, and when an operator prunes. It
// owns the image ledger.
//
// Package reclaim selects and removes; this package decides when, and records and logs the result. A Manager
// implements eviction.Reclaimer. It never stops a pod, removes nothing by itself during a pause, and leaves
// pod cgroups to a kubelet if there may be one. Its periodic rules are those of the kubelet's garbage collection.
package gc
