package disk

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup/dirtree"
	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// slowLayers answers for "slow" after a delay, with the layer's size at the time of the request.
type slowLayers struct {
	LayerSource
	mu    sync.Mutex
	used  int64
	takes time.Duration
}

func (s *slowLayers) set(used int64, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.takes = used, takes
}

func (s *slowLayers) WritableLayer(_ context.Context, id string) (cri.FsUsage, error) {
	s.mu.Lock()
	u, takes := cri.FsUsage{UsedBytes: s.used, Known: true, At: time.Now()}, s.takes
	s.mu.Unlock()
	if id == "slow" {
		time.Sleep(takes)
	}
	return u, nil
}

// noLayers lets a measurement ask the runtime and wait for nothing.
var noLayers = &layers{}

func slowMeter(t *testing.T) (*Meter, *slowLayers, []inventory.Pod) {
	t.Helper()
	layers, start := &slowLayers{used: 7, takes: 15 * time.Second}, time.Now()
	m := newTestMeter(t, layers)
	m.now = func() time.Duration { return time.Hour + time.Since(start) }
	return m, layers, []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}, Containers: []inventory.Container{{ID: "first"}, {ID: "slow"}}}}
}

// A pod that fills a disk while a measurement for a storage limit is in progress must not look innocent.
func TestMeterTakesNoOldMeasurementForAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		defer time.Sleep(time.Minute) // let everything end
		m.Measure(t.Context(), pods)  // continues for 5 s
		layers.set(1000, 0)
		m.MeasureSince(t.Context(), pods, time.Now())
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(2000) {
			t.Errorf("measured %+v, want 2000", u.Bytes.Rootfs)
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		layers.set(0, 15*time.Second)
		go m.Measure(t.Context(), pods)
		time.Sleep(time.Second)
		layers.set(3000, 0)
		m.MeasureSince(t.Context(), pods, time.Now())
		time.Sleep(measureTimeout)
		synctest.Wait()
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(6000) {
			t.Errorf("an older measurement that ended later replaced it: %+v", u.Bytes.Rootfs)
		}
	})
}

// A measurement that began before the stop did gives a lower bound.
func TestMeterLowersWhatBeganTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		defer time.Sleep(time.Minute) // let everything end
		layers.set(7, 35*time.Second)
		pods[0].Containers = pods[0].Containers[1:]
		m.measureFrom(t.Context(), pods, m.now(), noLayers)
		time.Sleep(20 * time.Second)
		m.underWay(measureKey{"p", true}, &call{}).set(volumesOf, amounts{}) // it makes progress, so it is waited for
		m.measureFrom(t.Context(), pods, m.now()-measureTimeout, noLayers)
		if u, _ := m.Usage("p"); u.Bytes.Rootfs.Quality == policy.QualityExact {
			t.Errorf("measured %+v", u.Bytes.Rootfs)
		}
		layers.set(9, 0)
		m.measureFrom(t.Context(), pods, m.now()-measureTimeout, noLayers)
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(9) {
			t.Errorf("measured %+v once the old one has ended, want 9", u.Bytes.Rootfs)
		}
	})
}

// A measurement that ends between two calls is not lost: otherwise a pod that takes longer than one call
// waits would never be measured in full.
func TestMeterKeepsWhatEndsBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, pods := slowMeter(t)
		defer time.Sleep(time.Minute) // let everything end
		m.measureFrom(t.Context(), pods, m.now(), noLayers)
		if u, _ := m.Usage("p"); u.Bytes.Rootfs.Quality == policy.QualityExact {
			t.Fatalf("measured %+v at once", u.Bytes.Rootfs)
		}
		from := m.now() - measureTimeout // for the reclaim that follows at once
		time.Sleep(8 * time.Second)      // the reclaim runs and waits for samples
		synctest.Wait()
		began := time.Now()
		m.measureFrom(t.Context(), pods, from, noLayers)
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(14) || time.Since(began) != 0 {
			t.Errorf("measured %+v after %s, want 14 at once", u.Bytes.Rootfs, time.Since(began))
		}
		if len(m.running) != 0 {
			t.Errorf("left: %v", m.running)
		}
	})
}

// A hung log filesystem does not hide a pod's usage of other filesystems.
func TestMeterHangingLogsHideNoOtherUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, pods := slowMeter(t)
		j, release := newPodMeasure(&pods[0], m.now), make(chan struct{})
		go m.pod(t.Context(), &pods[0], func() policy.LogsPlace { <-release; return policy.LogsPlace{} }, j)
		time.Sleep(time.Minute)
		synctest.Wait()
		var u Usage
		if j.result(&u, anyTime); u.Bytes.Rootfs != policy.Exactly(14) || u.Bytes.Volumes != policy.Exactly(0) || u.Bytes.Logs.Quality != policy.QualityUnknown {
			t.Errorf("measured %+v", u.Bytes)
		}
		close(release)
	})
}

// What a pod uses of other filesystems stays known, however long that of the logs hangs. One measurement of a pod at most is
// left behind, and once it ends, the logs are measured again.
func TestMeterGoesOnWithoutLogsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		layers.set(7, 0)
		release := make(chan struct{})
		m.begin(t.Context(), measureKey{"p", false}, pods[0], &call{anyTime, noLayers, func() policy.LogsPlace { <-release; return policy.LogsPlace{} }, nil}, func() {})
		for range 20 {
			m.Measure(t.Context(), pods)
			time.Sleep(20 * time.Second)
			if u, ok := m.Usage("p"); !ok || u.Bytes.Rootfs.Value != 14 || u.Bytes.Logs.Quality != policy.QualityUnknown {
				t.Fatalf("measured %+v, %t", u.Bytes, ok)
			}
		}
		if len(m.hung) != 1 || len(m.running) != 0 {
			t.Errorf("%d left behind, %d running", len(m.hung), len(m.running))
		}
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(14) {
			t.Errorf("measured %+v", u.Bytes.Rootfs)
		}
		close(release)
		synctest.Wait()
		m.Measure(t.Context(), pods)
		if u, _ := m.Usage("p"); u.Bytes.Logs != policy.Exactly(0) || len(m.hung) != 0 {
			t.Errorf("once it ends: %+v, %d left behind", u.Bytes.Logs, len(m.hung))
		}
	})
}

// overlay is the mount of a container's root filesystem.
func overlay(id, upper string) mountinfo.Mount {
	return mountinfo.Mount{
		Type: "overlay", Point: "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/" + id + "/rootfs",
		Options: []string{"rw", "lowerdir=/var/lib/l1:/var/lib/l2", "upperdir=" + upper, "workdir=/var/lib/w"},
	}
}

// A writable layer that this process sees is walked at once: containerd may have sampled it ten seconds ago. The samples of the others
// are waited for, and delay neither that nor the volumes.
func TestMeterWalksLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLayers{every: 10 * time.Second, started: time.Now(), wrote: map[string]int64{"seen": 1, "unseen": 2, "escaped": 3, "elsewhere": 4}, asked: map[string]int{}}
		upper := t.TempDir()
		volumes := filepath.Join("/pods", "uid", "volumes", "kubernetes.io~empty-dir")
		m := NewMeter(MeterOptions{
			Source: func() (LayerSource, error) { return f, nil },
			Paths:  only("/"), Logs: t.TempDir(), Now: func() time.Duration { return time.Hour + time.Since(f.started) },
			Mounts: func() ([]mountinfo.Mount, error) {
				return []mountinfo.Mount{
					overlay("seen", upper), overlay("escaped", upper+`\040x`), overlay("elsewhere", "/no/such/directory"),
					{Type: "ext4", Point: "/x/unseen/rootfs", Options: []string{"upperdir=" + upper}}, overlay("of another pod", upper),
				}, nil
			},
			Tree: func(_ context.Context, dir string, _ func(dirtree.Usage)) (dirtree.Usage, error) {
				return dirtree.Usage{Bytes: map[string]int64{upper: 1000, volumes: 500}[dir], Inodes: 1}, nil
			},
		})
		pod := func(id string) inventory.Pod {
			return inventory.Pod{Candidate: policy.Candidate{ID: id, UID: "uid"}, Containers: []inventory.Container{{ID: id}}}
		}
		pods := []inventory.Pod{pod("unseen"), pod("escaped"), pod("elsewhere"), pod("seen")}
		time.Sleep(15 * time.Second)
		m.Measure(t.Context(), pods)
		if u, _ := m.Usage("seen"); u.Bytes.Rootfs != policy.Exactly(1) {
			t.Errorf("measured %+v without need", u.Bytes.Rootfs)
		}
		time.Sleep(time.Second)
		done := make(chan struct{})
		go func() { defer close(done); m.MeasureSince(t.Context(), pods, time.Now()) }()
		synctest.Wait()
		if u, ok := m.Usage("seen"); !ok || u.Bytes.Rootfs != policy.Exactly(1000) || u.Bytes.Volumes != policy.Exactly(500) {
			t.Errorf("at once: %+v", u.Bytes)
		}
		for i, want := range []int64{2, 3, 4} {
			if u, ok := m.Usage(pods[i].ID); !ok || u.Bytes.Rootfs != policy.AtLeast(want) || u.Bytes.Volumes != policy.Exactly(500) {
				t.Errorf("%s: at once %+v, want the last sample as a lower bound", pods[i].ID, u.Bytes)
			}
		}
		<-done
		if took := time.Since(f.started) - 15*time.Second; took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		for i, want := range []int64{4, 6, 8, 1000} {
			if u, _ := m.Usage(pods[i].ID); u.Bytes.Rootfs != policy.Exactly(want) {
				t.Errorf("%s: %+v, want %d", pods[i].ID, u.Bytes.Rootfs, want)
			}
		}
	})
}

// While a pod is measured, its usage is what it was before or what was counted so far, whichever is more, as a lower bound.
func TestMeterTellsWhatItHasSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		layers.set(0, 0)
		counted, volume := make(chan int64), int64(100)
		m.measureTree = func(_ context.Context, dir string, progress func(dirtree.Usage)) (dirtree.Usage, error) {
			if filepath.Base(dir) != "kubernetes.io~empty-dir" {
				return dirtree.Usage{}, nil
			}
			for bytes := range counted {
				progress(dirtree.Usage{Bytes: bytes, Inodes: 1})
			}
			return dirtree.Usage{Bytes: volume}, nil
		}
		want := func(want policy.Measured) {
			t.Helper()
			synctest.Wait()
			if u, ok := m.Usage("p"); !ok || u.Bytes.Volumes != want {
				t.Errorf("%+v, want %+v", u.Bytes.Volumes, want)
			}
		}
		close(counted)
		m.Measure(t.Context(), pods)
		want(policy.Exactly(100))
		time.Sleep(time.Second)
		counted, volume = make(chan int64), 700
		done := make(chan struct{})
		go func() { defer close(done); m.MeasureSince(t.Context(), pods, time.Now()) }()
		want(policy.AtLeast(100))
		counted <- 50
		want(policy.AtLeast(100))
		counted <- 600
		want(policy.AtLeast(600))
		close(counted)
		<-done
		want(policy.Exactly(700))
	})
}

// A measurement that need not be fresh replaces no walk by an older sample of the runtime: the pod that has just filled the disk would
// look innocent. It walks, too, for as long as a fresh measurement is valid.
func TestMeterReplacesNoWalkByAnOlderSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLayers{every: 10 * time.Second, started: time.Now(), wrote: map[string]int64{"c": 1}, asked: map[string]int{}}
		upper, wrote := t.TempDir(), int64(1000)
		m := NewMeter(MeterOptions{
			Source: func() (LayerSource, error) { return f, nil },
			Paths:  only("/"), Logs: t.TempDir(), Now: func() time.Duration { return time.Hour + time.Since(f.started) },
			Mounts: func() ([]mountinfo.Mount, error) { return []mountinfo.Mount{overlay("c", upper)}, nil },
			Tree: func(_ context.Context, dir string, _ func(dirtree.Usage)) (dirtree.Usage, error) {
				return dirtree.Usage{Bytes: map[string]int64{upper: wrote}[dir], Inodes: 1}, nil
			},
		})
		pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}, Containers: []inventory.Container{{ID: "c"}}}}
		want := func(want policy.Measured) {
			t.Helper()
			if u, _ := m.Usage("p"); u.Bytes.Rootfs != want {
				t.Errorf("after %s: %+v, want %+v", time.Since(f.started), u.Bytes.Rootfs, want)
			}
		}
		time.Sleep(15 * time.Second)
		m.MeasureSince(t.Context(), pods, time.Now())
		want(policy.Exactly(1000))
		time.Sleep(time.Second)
		wrote = 2000
		m.Measure(t.Context(), pods)
		want(policy.Exactly(2000))
		time.Sleep(usageFresh)
		m.Measure(t.Context(), pods)
		want(policy.Exactly(7))
	})
}

// A fresh measurement that was cut short takes nothing over from one that is too old for a stop: it would count as too old as well.
func TestMeterKeepsNothingFromBeforeAFreshMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		layers.set(0, 0)
		m.measureTree = func(_ context.Context, dir string, _ func(dirtree.Usage)) (dirtree.Usage, error) {
			return dirtree.Usage{Bytes: map[bool]int64{true: 500}[filepath.Base(dir) == "kubernetes.io~empty-dir"]}, nil
		}
		m.Measure(t.Context(), pods)
		m.measureTree = func(_ context.Context, dir string, _ func(dirtree.Usage)) (dirtree.Usage, error) {
			return dirtree.Usage{Bytes: map[bool]int64{true: 300}[filepath.Base(dir) == "kubernetes.io~empty-dir"], Partial: true}, nil
		}
		for _, c := range []struct {
			after time.Duration
			want  int64
			age   time.Duration
		}{{measureTimeout, 500, measureTimeout}, {time.Second, 300, 0}} {
			time.Sleep(c.after)
			m.MeasureSince(t.Context(), pods, time.Now())
			if u, ok := m.Usage("p"); !ok || u.Bytes.Volumes != policy.AtLeast(c.want) || m.now()-u.At != c.age {
				t.Errorf("%+v from %s ago, want %+v", u.Bytes.Volumes, m.now()-u.At, c)
			}
		}
	})
}

// A measurement that has not come to the logs yet knows from the last one that they are on another device. Otherwise, their last size
// would make the pod look guilty of filling nodefs, and a stop would remove them in vain.
func TestMeterKnowsTheDeviceOfTheLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		layers.set(7, 0)
		hang, apart := make(chan struct{}), policy.LogsPlace{LogsApart: true}
		for _, c := range []struct {
			known bool // before
			look  func() policy.LogsPlace
		}{{false, func() policy.LogsPlace { return apart }}, {true, func() policy.LogsPlace { <-hang; return apart }}} {
			if got := m.unknown(&pods[0]).Bytes.LogsApart; got != c.known {
				t.Errorf("before: %t, want %t", got, c.known)
			}
			m.begin(t.Context(), measureKey{"p", true}, pods[0], &call{anyTime, noLayers, c.look, maps.Clone(m.newest)}, func() {})
			synctest.Wait()
			if u, ok := m.Usage("p"); !ok || !u.Bytes.LogsApart || !u.Inodes.LogsApart || (u.Bytes.Logs.Quality == policy.QualityUnknown) != c.known {
				t.Errorf("known before %t: %+v", c.known, u.Bytes)
			}
		}
		close(hang)
	})
}

// Volumes and writable layers may be on different devices. A walk of one that takes long leaves the other known.
func TestMeterWalksVolumesBesideLayers(t *testing.T) {
	for _, slow := range []string{"volumes", "layer"} {
		synctest.Test(t, func(t *testing.T) {
			m, layers, pods := slowMeter(t)
			layers.set(7, 0)
			upper, goOn := t.TempDir(), make(chan struct{})
			m.mounts = func() ([]mountinfo.Mount, error) { return []mountinfo.Mount{overlay("first", upper)}, nil }
			m.measureTree = func(_ context.Context, dir string, _ func(dirtree.Usage)) (dirtree.Usage, error) {
				if (dir == upper) == (slow == "layer") && dir != filepath.Join(m.logs, pods[0].LogDirName()) {
					<-goOn
				}
				return dirtree.Usage{Bytes: map[bool]int64{true: 1000, false: 500}[dir == upper], Inodes: 1}, nil
			}
			done := make(chan struct{})
			go func() { defer close(done); m.MeasureSince(t.Context(), pods, time.Now()) }()
			synctest.Wait()
			u, ok := m.Usage("p")
			if known, not := u.Bytes.Rootfs, u.Bytes.Volumes; slow == "volumes" {
				if !ok || known != policy.Exactly(1007) || not.Quality != policy.QualityUnknown {
					t.Errorf("slow %s: %+v", slow, u.Bytes)
				}
			} else if !ok || not != policy.Exactly(500*int64(len(podFiles))) || known.Quality != policy.QualityUnknown {
				t.Errorf("slow %s: %+v", slow, u.Bytes)
			}
			close(goOn)
			<-done
			if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(1007) || u.Bytes.Volumes != policy.Exactly(500*int64(len(podFiles))) {
				t.Errorf("slow %s, in the end: %+v", slow, u.Bytes)
			}
		})
	}
}

// Nor does a device of the writable layers that hangs hide what a pod uses of other filesystems. The runtime still answers for them.
func TestMeterGoesOnWithoutLayersThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		layers.set(7, 0)
		upper, hang, volumes := t.TempDir(), make(chan struct{}), 100*int64(len(podFiles))
		m.mounts = func() ([]mountinfo.Mount, error) { return []mountinfo.Mount{overlay("first", upper)}, nil }
		m.measureTree = func(_ context.Context, dir string, _ func(dirtree.Usage)) (dirtree.Usage, error) {
			if dir == upper {
				<-hang
			}
			return dirtree.Usage{Bytes: 100, Inodes: 1}, nil
		}
		for i := range 10 {
			m.MeasureSince(t.Context(), pods, time.Now())
			m.Measure(t.Context(), pods)
			time.Sleep(20 * time.Second)
			if u, ok := m.Usage("p"); !ok || u.Bytes.Volumes.Value != volumes {
				t.Fatalf("round %d: measured %+v, %t", i, u.Bytes, ok)
			}
		}
		m.MeasureSince(t.Context(), pods, time.Now())
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(14) || u.Bytes.Volumes != policy.Exactly(volumes) || len(m.hung) > 2 {
			t.Errorf("measured %+v, %d left behind", u.Bytes, len(m.hung))
		}
		close(hang)
		synctest.Wait()
		m.MeasureSince(t.Context(), pods, time.Now())
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(107) || len(m.hung) != 0 {
			t.Errorf("once it ends: %+v, %d left behind", u.Bytes, len(m.hung))
		}
	})
}

// A tree that takes longer to walk than a call waits is known in part, whenever it is asked for, and is walked to its end.
func TestMeterKnowsATreeThatTakesLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes int64         // nearly so many seconds
		pause time.Duration // between the calls
		want  []policy.Measured
	}{
		{"a call after the other", 30, 1500 * time.Millisecond, []policy.Measured{policy.AtLeast(10), policy.AtLeast(21), policy.AtLeast(30)}},
		{"ends between two", 15, 7 * time.Second, []policy.Measured{policy.AtLeast(10), policy.AtLeast(15), policy.AtLeast(15)}},
		{"ended too long ago", 15, 20 * time.Second, []policy.Measured{policy.AtLeast(10), policy.AtLeast(10)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, layers, pods := slowMeter(t)
				defer time.Sleep(time.Minute) // let everything end
				layers.set(0, 0)
				pods[0].Containers = nil
				m.measureTree = func(_ context.Context, dir string, progress func(dirtree.Usage)) (dirtree.Usage, error) {
					if filepath.Base(dir) != "kubernetes.io~empty-dir" {
						return dirtree.Usage{}, nil
					}
					for bytes := range c.takes {
						time.Sleep(990 * time.Millisecond)
						progress(dirtree.Usage{Bytes: bytes + 1})
					}
					return dirtree.Usage{Bytes: c.takes}, nil
				}
				for i, want := range c.want {
					since := m.now()
					m.MeasureSince(t.Context(), pods, time.Now())
					synctest.Wait()
					if u, ok := m.Usage("p"); !ok || u.Bytes.Volumes != want || u.At < since-measureTimeout {
						t.Errorf("call %d: %+v from %v ago, want %+v from after %v ago", i, u.Bytes.Volumes, m.now()-u.At, want, m.now()-since+measureTimeout)
					}
					time.Sleep(c.pause)
				}
			})
		})
	}
}

// So does a walk whose caller gave up, as when a reclaim has met its target.
func TestMeterKnowsATreeWhoseCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		defer time.Sleep(time.Minute) // let everything end
		ctx, cancel := context.WithCancel(t.Context())
		go m.MeasureSince(ctx, pods, time.Now())
		time.Sleep(time.Second)
		cancel()
		time.Sleep(15 * time.Second)
		layers.set(0, time.Minute)
		m.measureFrom(t.Context(), pods, m.now()-measureTimeout, noLayers)
		if u, ok := m.Usage("p"); !ok || u.Bytes.Rootfs != policy.AtLeast(14) {
			t.Errorf("%+v", u.Bytes.Rootfs)
		}
	})
}

// While a fresh measurement runs, what is known from long before it does not make it too old for a stop.
func TestMeterKeepsNothingTooOldMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layers, pods := slowMeter(t)
		defer time.Sleep(time.Minute) // let everything end
		layers.set(500, 0)
		m.Measure(t.Context(), pods)
		time.Sleep(20 * time.Second)
		layers.set(30, 5*time.Second)
		began := m.now()
		go m.MeasureSince(t.Context(), pods, time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		if u, ok := m.Usage("p"); !ok || u.At < began {
			t.Errorf("%+v from %v before", u.Bytes, began-u.At)
		}
	})
}
