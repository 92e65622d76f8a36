// Package prune tests pruning on a real containerd with a small image filesystem:
// just enough goes, nothing that is protected ever does, and a pod that starts
// meanwhile never misses its image.
package prune_test
