package policy

import (
	"slices"
	"testing"
)

// A kubelet's configuration can name the kubelet's signals, and no signal that only criguard has.
func TestSignalsInKubelet(t *testing.T) {
	kubelets := []Signal{
		MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable, NodeFSAvailable, NodeFSInodesFree,
		ImageFSAvailable, ImageFSInodesFree, ContainerFSAvailable, ContainerFSInodesFree,
	}
	for s := range SignalCount + 1 {
		if got, want := s.InKubelet(), slices.Contains(kubelets, s); got != want {
			t.Errorf("%s: the kubelet has it = %t, want %t", s, got, want)
		}
	}
}
