// Package prune tests pruning on a real containerd with a small image filesystem: criguard removes
// just enough images and never a protected one, and a pod that starts meanwhile never misses its
// image.
package prune_test
