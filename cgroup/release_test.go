package cgroup

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// procOf is a procfs with processes of those sizes in MiB.
func procOf(t *testing.T, mib map[int]int) Layout {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for pid, n := range mib {
		files[strconv.Itoa(pid)+"/statm"] = fmt.Sprintf("99999999 %d 1 1 0 1 0\n", n<<20/os.Getpagesize())
	}
	write(t, dir, files)
	return Layout{proc: Proc(dir)}
}

// The memory of the biggest processes is released, wherever they are in the list.
func TestReleaseOfTheBiggest(t *testing.T) {
	sizes, pids := map[int]int{}, []int{}
	for pid := 100; pid < 160; pid++ {
		sizes[pid] = pid // MiB: the last ones are the biggest
		pids = append(pids, pid)
	}
	sizes[100], sizes[101] = 5000, 15
	pids = append(pids, 7) // has ended
	want := []int{100}
	for pid := 159; len(want) < releasedVictims; pid-- {
		want = append(want, pid)
	}
	if got := procOf(t, sizes).biggest(pids); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := procOf(t, map[int]int{1: 15}).biggest([]int{1, 2}); got != nil {
		t.Errorf("small ones: %v", got)
	}
}

// A process that is killed again and again while its memory cannot be released has one release under way, and any number of
// such processes has a few.
func TestReleasesAreBounded(t *testing.T) {
	sizes := map[int]int{}
	for pid := range 100 {
		sizes[pid+2] = 100
	}
	l := procOf(t, sizes)
	synctest.Test(t, func(t *testing.T) {
		var r releases
		var under, total atomic.Int64
		stuck := make(chan struct{})
		free := func(int) {
			under.Add(1)
			total.Add(1)
			<-stuck
			under.Add(-1)
		}
		for range 3 {
			r.start(l, []int{2}, free)
			synctest.Wait()
		}
		if n := total.Load(); n != 1 {
			t.Errorf("%d releases of one process", n)
		}
		for pid := range sizes {
			r.start(l, []int{pid}, free)
			synctest.Wait()
		}
		if n := under.Load(); n != maxReleases {
			t.Errorf("%d releases at once, want %d", n, maxReleases)
		}
		close(stuck)
		synctest.Wait()
		r.start(l, []int{2, 3}, free)
		synctest.Wait()
		if under.Load() != 0 || total.Load() != maxReleases+2 || len(r.pids) != 0 || r.running != 0 {
			t.Errorf("%d of %d releases have not ended", under.Load(), total.Load())
		}
	})
}
