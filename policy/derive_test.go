package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVectorsAllocatable checks how allocatableMemory.available is derived from memory.available.
func TestVectorsAllocatable(t *testing.T) {
	mem := func(value, reclaim int64) Threshold {
		return Threshold{Signal: MemoryAvailable, Value: Bytes(value * mi), MinReclaim: Bytes(reclaim * mi)}
	}
	pods := func(value, reclaim int64) Threshold {
		t := mem(value, reclaim)
		t.Signal = AllocatableMemoryAvailable
		return t
	}
	image := Threshold{Signal: ImageFSAvailable, Value: Bytes(150 * mi)}
	soft := Threshold{Signal: MemoryAvailable, Kind: Soft, Grace: time.Minute, Value: Bytes(150 * mi)}
	for _, v := range []struct {
		id       string
		in, want []Threshold
	}{
		{"B1", []Threshold{image}, []Threshold{image}},
		{"B2", []Threshold{soft}, []Threshold{soft}},
		{"B3", []Threshold{mem(150, 0)}, []Threshold{mem(150, 0), pods(150, 0)}},
		{"B4", []Threshold{mem(150, 0), mem(200, 1024)}, []Threshold{mem(150, 0), mem(200, 1024), pods(150, 0), pods(200, 1024)}},
	} {
		t.Run(v.id, func(t *testing.T) {
			if got := Derive(v.in, SingleFS, true); !slices.Equal(got, v.want) {
				t.Errorf("got %v, want %v", got, v.want)
			}
			if got := Derive(v.in, SingleFS, false); !slices.Equal(got, v.in) {
				t.Errorf("without a limit got %v, want %v", got, v.in)
			}
		})
	}
}

func TestDeriveContainerFS(t *testing.T) {
	ts := thresholds(t,
		table{"nodefs.available": "10%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
		table{"nodefs.inodesFree": "20%", "imagefs.available": "30%"},
		table{"nodefs.inodesFree": "1m", "imagefs.available": "2m"},
		table{"imagefs.available": "1Gi"})
	derived := func(layout Layout, off ...Threshold) string {
		var got []string
		for _, d := range Derive(ts, layout, true, off...) {
			if d.Signal == ContainerFSAvailable || d.Signal == ContainerFSInodesFree {
				got = append(got, d.String()+"="+d.Value.String()+"/"+d.Grace.String()+"/"+d.MinReclaim.String())
			}
		}
		return strings.Join(got, " ")
	}
	nodefs := "containerfs.available:hard=10%/0s/0 containerfs.inodesFree:soft=20%/1m0s/0"
	imagefs := "containerfs.available:hard=15%/0s/1Gi containerfs.inodesFree:hard=5%/0s/0 containerfs.available:soft=30%/2m0s/1Gi"
	for layout, want := range map[Layout]string{SingleFS: nodefs, SplitFS: nodefs, DedicatedImageFS: imagefs, DedicatedContainerFS: nodefs, SeparateFS: nodefs} {
		if got := derived(layout); got != want {
			t.Errorf("%s: derived %s, want %s", layout, got, want)
		}
	}
	off := []Threshold{{Signal: ContainerFSAvailable, Value: Percent(0)}, {Signal: ContainerFSInodesFree, Kind: Soft, Value: Percent(100)}}
	if got := derived(SingleFS, off...); got != "" {
		t.Errorf("derived %s though it is switched off", got)
	}
	own := Threshold{Signal: ContainerFSAvailable, Value: Percent(1)}
	for _, d := range Derive(append(ts, own), SingleFS, true) {
		if d.Signal == ContainerFSAvailable && d != own {
			t.Errorf("the user's value is joined by %v", d)
		}
	}
}
