package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

type table = map[string]string

func TestVectorsA(t *testing.T) {
	const s30 = 30 * time.Second
	b, p := func(n int64) Quantity { return Bytes(n * mi) }, func(s string) Quantity { return quantity(t, s) }
	for _, v := range []struct {
		id                     string
		hard, soft, grace, min table
		allocatable            bool
		want                   []Threshold
		err                    string
	}{
		{id: "A1"},
		{
			id: "A2", hard: table{"memory.available": "150Mi"}, soft: table{"memory.available": "300Mi"},
			grace: table{"memory.available": "30s"}, min: table{"memory.available": "0"}, allocatable: true,
			want: []Threshold{
				{MemoryAvailable, Hard, b(150), 0, Bytes(0)},
				{AllocatableMemoryAvailable, Hard, b(150), 0, Bytes(0)},
				{MemoryAvailable, Soft, b(300), s30, Bytes(0)},
			},
		},
		{
			id: "A3", hard: table{"memory.available": "10%"}, soft: table{"memory.available": "30%"},
			grace: table{"memory.available": "30s"}, min: table{"memory.available": "5%"},
			want: []Threshold{{MemoryAvailable, Hard, p("10%"), 0, p("5%")}, {MemoryAvailable, Soft, p("30%"), s30, p("5%")}},
		},
		{
			id:   "A4",
			hard: table{"imagefs.available": "150Mi", "nodefs.available": "100Mi"}, soft: table{"imagefs.available": "300Mi", "nodefs.available": "200Mi"},
			grace: table{"imagefs.available": "30s", "nodefs.available": "30s"}, min: table{"imagefs.available": "2Gi", "nodefs.available": "1Gi"},
			want: []Threshold{
				{NodeFSAvailable, Hard, b(100), 0, Bytes(gi)}, {ImageFSAvailable, Hard, b(150), 0, Bytes(2 * gi)},
				{NodeFSAvailable, Soft, b(200), s30, Bytes(gi)}, {ImageFSAvailable, Soft, b(300), s30, Bytes(2 * gi)},
			},
		},
		{
			id:   "A5",
			hard: table{"imagefs.available": "15%", "nodefs.available": "10.5%"}, soft: table{"imagefs.available": "30%", "nodefs.available": "20.5%"},
			grace: table{"imagefs.available": "30s", "nodefs.available": "30s"}, min: table{"imagefs.available": "10%", "nodefs.available": "5%"},
			want: []Threshold{
				{NodeFSAvailable, Hard, p("10.5%"), 0, p("5%")}, {ImageFSAvailable, Hard, p("15%"), 0, p("10%")},
				{NodeFSAvailable, Soft, p("20.5%"), s30, p("5%")}, {ImageFSAvailable, Soft, p("30%"), s30, p("10%")},
			},
		},
		{
			id:   "A6",
			hard: table{"imagefs.inodesFree": "150Mi", "nodefs.inodesFree": "100Mi"}, soft: table{"imagefs.inodesFree": "300Mi", "nodefs.inodesFree": "200Mi"},
			grace: table{"imagefs.inodesFree": "30s", "nodefs.inodesFree": "30s"}, min: table{"imagefs.inodesFree": "2Gi", "nodefs.inodesFree": "1Gi"},
			want: []Threshold{
				{NodeFSInodesFree, Hard, b(100), 0, Bytes(gi)}, {ImageFSInodesFree, Hard, b(150), 0, Bytes(2 * gi)},
				{NodeFSInodesFree, Soft, b(200), s30, Bytes(gi)}, {ImageFSInodesFree, Soft, b(300), s30, Bytes(2 * gi)},
			},
		},
		{id: "A7", hard: table{"memory.available": "0%"}, soft: table{"memory.available": "0%"}},
		{id: "A8", hard: table{"memory.available": "100%"}, soft: table{"memory.available": "100%"}},
		{id: "A9", hard: table{"mem.available": "150Mi"}, err: `eviction.hard: "mem.available" = "150Mi": unknown signal (hint: did you mean "memory.available"?)`},
		{id: "A10", hard: table{"memory.available": "-150Mi"}, err: `eviction.hard: "memory.available" = "-150Mi": must not be negative`},
		{id: "A11", hard: table{"memory.available": "-15%"}, err: `eviction.hard: "memory.available" = "-15%": must not be negative`},
		{id: "A12", hard: table{"memory.available": "150%"}, err: `eviction.hard: "memory.available" = "150%": must not be above 100%`},
		{id: "A13", soft: table{"memory.available": "-150Mi"}, err: `eviction.soft: "memory.available" = "-150Mi": must not be negative`},
		{id: "A14", hard: table{"memory.available": "150Mi", "invalid.foo": "150Mi"}, err: `eviction.hard: "invalid.foo" = "150Mi": unknown signal (hint: signals are memory.available, `},
		{id: "A15", soft: table{"memory.available": "150Mi"}, err: `eviction.soft_grace_period: "memory.available" = "": must be set for a soft threshold (hint: as "1m30s")`},
		{id: "A16", soft: table{"memory.available": "150Mi"}, grace: table{"memory.available": "-30s"}, err: `eviction.soft_grace_period: "memory.available" = "-30s": must not be negative`},
		{id: "A17", min: table{"memory.available": "-300Mi"}, err: `eviction.minimum_reclaim: "memory.available" = "-300Mi": must not be negative`},
		{id: "A18", hard: table{"memory.available": "0"}, err: `eviction.hard: "memory.available" = "0": must be above 0 (hint: "0%" or "100%" switches a threshold off)`},
		{id: "A19", min: table{"memory.available": "0%"}, err: `eviction.minimum_reclaim: "memory.available" = "0%": must be above 0% (hint: "0" asks for no minimum)`},
	} {
		t.Run(v.id, func(t *testing.T) {
			got, err := ParseThresholds(v.hard, v.soft, v.grace, v.min)
			if v.allocatable {
				got = Derive(got, SingleFS, true)
			}
			if !slices.Equal(got, v.want) {
				t.Errorf("got %v, want %v", got, v.want)
			}
			if v.err == "" && err != nil || v.err != "" && (err == nil || !strings.HasPrefix(err.Error(), v.err) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("error %v, want %q alone", err, v.err)
			}
			var te *ThresholdError
			if err != nil && !errors.As(err, &te) {
				t.Errorf("error %v is no *ThresholdError", err)
			}
		})
	}
}

func TestParseThresholdsMore(t *testing.T) {
	for _, v := range []struct {
		name                   string
		hard, soft, grace, min table
		want                   int // thresholds
		err                    string
	}{
		{name: "soft grace 0", soft: table{"pid.available": "5%"}, grace: table{"pid.available": "0s"}, want: 1},
		{name: "grace without a soft threshold", hard: table{"pid.available": "5%"}, grace: table{"pid.available": "1m"}, want: 1},
		{name: "grace of an unknown signal", grace: table{"pids": "1m"}, err: "unknown signal"},
		{name: "grace that is none", soft: table{"pid.available": "5%"}, grace: table{"pid.available": "soon"}, err: "must be a duration"},
		{name: "a stall is a share", hard: table{"memory.stall": "100Mi"}, err: "must be a percentage"},
		{name: "and so is what it must recover", hard: table{"io.stall": "80%"}, min: table{"io.stall": "1Mi"}, err: "must be a percentage"},
		{name: "a stall with its minimum", hard: table{"io.stall": "80%"}, min: table{"io.stall": "10%"}, want: 1},
		{name: "a target above everything", hard: table{"memory.available": "60%"}, min: table{"memory.available": "40.5%"}, err: "must leave the threshold attainable (hint: with the hard threshold of 60%"},
		{name: "a target of everything", hard: table{"memory.available": "60%"}, min: table{"memory.available": "40%"}, want: 1},
		{name: "empty value", hard: table{"memory.available": ""}, err: "must be a quantity"},
		{name: "defaults", hard: DefaultHard(), want: 6},
	} {
		t.Run(v.name, func(t *testing.T) {
			got, err := ParseThresholds(v.hard, v.soft, v.grace, v.min)
			if len(got) != v.want || (err == nil) != (v.err == "") || err != nil && !strings.Contains(err.Error(), v.err) {
				t.Errorf("got %v, %v; want %d thresholds, error %q", got, err, v.want, v.err)
			}
		})
	}
}

// TestParseThresholdsTellsAll: a user sees every mistake at once, in one order.
func TestParseThresholdsTellsAll(t *testing.T) {
	hard := table{"memory.available": "-1", "pid.available": "101%", "x": "1"}
	soft := table{"nodefs.available": "10%", "imagefs.available": "10%"}
	grace := table{"imagefs.available": "-1s"}
	reclaim := table{"memory.available": "0%"}
	want := []string{"memory.available", "pid.available", "x", "imagefs.available", "nodefs.available", "memory.available"}
	for range 20 {
		_, err := ParseThresholds(hard, soft, grace, reclaim)
		var got []string
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			var te *ThresholdError
			errors.As(e, &te)
			got = append(got, te.Signal)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("errors for %v, want %v", got, want)
		}
	}
}

// TestVectorsAllocatable is how allocatableMemory.available follows
// memory.available.
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
	ts, err := ParseThresholds(
		table{"nodefs.available": "10%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
		table{"nodefs.inodesFree": "20%", "imagefs.available": "30%"},
		table{"nodefs.inodesFree": "1m", "imagefs.available": "2m"},
		table{"imagefs.available": "1Gi"})
	if err != nil {
		t.Fatal(err)
	}
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
	for layout, want := range map[Layout]string{SingleFS: nodefs, SplitFS: nodefs, DedicatedImageFS: imagefs} {
		if got := derived(layout); got != want {
			t.Errorf("%s: derived %s, want %s", layout, got, want)
		}
	}
	off := SwitchedOff(table{"containerfs.available": "0%", "nodefs.available": "10%", "x": "0%"}, table{"containerfs.inodesFree": "100%"})
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
