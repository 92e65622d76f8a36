package scenario

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shortage is how long memory may stay below its threshold while a pod leaks. Emulation slows the
// relief down.
const shortage = 20 * time.Second

// watch checks the invariants for the given time.
func (s *storm) watch(length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end) && len(s.failures) == 0; time.Sleep(50 * time.Millisecond) {
		s.lasting = slices.DeleteFunc(s.lasting, func(l lasting) bool {
			over := time.Now().After(l.ends)
			if over {
				s.note("%s is over", l.name)
				l.end()
			}
			return over
		})
		if kills := s.machine.KernelKills() - s.before.kernelKills; kills > 0 {
			s.Errorf("the kernel killed %d processes for want of memory", kills)
		}
		if _, err := os.Stat("/proc/" + s.guardPID); err != nil {
			s.Errorf("criguard has ended")
		}
		for _, p := range s.pods {
			if !p.removed && !p.stopped && !s.lives(p) {
				s.Wrongf("%s does not run any more", p.ID())
			}
		}
		s.measure()
	}
}

// measure records how long memory has been short.
func (s *storm) measure() {
	if s.memory() >= int64(s.level)<<20 {
		s.short = time.Time{}
		return
	}
	if s.short.IsZero() {
		s.short = time.Now()
	}
	s.longest = max(s.longest, time.Since(s.short))
	if time.Since(s.short) > shortage {
		s.Errorf("memory is below %s for %s", s.threshold(), shortage)
	}
}

// cost is criguard's resource use.
type cost struct {
	files, threads int
	resident       int64 // KiB
}

func (c cost) String() string {
	return fmt.Sprintf("%d files, %d threads, %.1f MiB", c.files, c.threads, float64(c.resident)/1024)
}

// above reports whether the cost has grown by more than a longer history and a few more threads
// explain.
func (c cost) above(before cost) bool {
	return c.files > before.files || c.threads > before.threads+3 || c.resident > before.resident+4<<10
}

func (s *storm) cost() cost {
	files, err := os.ReadDir("/proc/" + s.guardPID + "/fd")
	if err != nil {
		s.Fatalf("%v", err)
	}
	text, err := os.ReadFile("/proc/" + s.guardPID + "/status")
	if err != nil {
		s.Fatalf("%v", err)
	}
	value := func(key string) int {
		_, after, _ := strings.Cut(string(text), "\n"+key+":")
		line, _, _ := strings.Cut(after, "\n")
		number, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(line), " kB"))
		return number
	}
	return cost{files: len(files), threads: value("Threads"), resident: int64(value("VmRSS"))}
}
