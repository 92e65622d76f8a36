package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestHogGrows(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{}, "hog", "-mib", "100", "-rate", "400")
		c := pod.Containers[0]
		var last int64
		for _, mark := range []int64{20 << 20, 60 << 20, 100 << 20} {
			eventually(t, "wait for memory", func() (bool, error) {
				used, err := memoryOf(l, c)
				if err != nil {
					return false, err
				}
				last = used
				return used >= mark, fmt.Errorf("%d of %d bytes", used, mark)
			})
		}
		waitLog(t, c, "hog: done")
		if last > 120<<20 {
			t.Errorf("took %d bytes", last)
		}
	})
}

func TestMemoryLimit(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{MemoryLimit: 32 << 20}, "hog", "-mib", "100")
		if code, err := l.WaitExit(t.Context(), pod.Containers[0].ID); code != 137 || err != nil {
			t.Errorf("got code %d, %v, want the kernel's OOM kill", code, err)
		}
	})
}

func TestForkCountsProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{}, "fork", "-count", "20")
		waitLog(t, pod.Containers[0], "fork: done")
		procs := readPIDs(filepath.Join(l.MemoryCgroupDir(pod.Containers[0].Cgroup), "cgroup.procs"))
		if len(procs) != 21 {
			t.Errorf("%d processes", len(procs))
		}
	})
}

func TestSpinBurnsCPU(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{}, "spin", "-for", "300ms")
		pid, err := l.PID(t.Context(), pod.Containers[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		waitLog(t, pod.Containers[0], "spin: done")
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		// User and system time in hundredths of a second are the 12th and 13th field after the command's name.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		user, err1 := strconv.Atoi(fields[11])
		system, err2 := strconv.Atoi(fields[12])
		if user+system < 10 || err1 != nil || err2 != nil {
			t.Errorf("ran for %d ms, %v, %v", 10*(user+system), err1, err2)
		}
	})
}

func TestTerm(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		for _, test := range []struct {
			name string
			args []string
			code int
			took time.Duration // at least
		}{
			{"heeds", []string{"pause"}, 0, 0},
			{"heeds late", []string{"pause", "-term-delay", "300ms"}, 0, 300 * time.Millisecond},
			{"ignores", []string{"ignore-term"}, 137, time.Second},
		} {
			t.Run(test.name, func(t *testing.T) {
				pod := runPod(t, l, PodSpec{}, test.args...)
				id := pod.Containers[0].ID
				waitLog(t, pod.Containers[0], ": done")
				begin := time.Now()
				if _, err := l.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 1}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took < test.took {
					t.Errorf("took %v, want at least %v", took, test.took)
				}
				if code, err := l.WaitExit(t.Context(), id); code != test.code || err != nil {
					t.Errorf("got code %d, %v, want %d", code, err, test.code)
				}
			})
		}
	})
}
