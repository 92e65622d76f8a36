// Package live runs the real criguard against a real containerd that is killed,
// comes late, or holds a pod that will not end.
package live_test
