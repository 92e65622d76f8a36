package live_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
)

// historyCost is how much a full history may add to the service's resident memory, in bytes. How much is resident in all
// is measured by make bench.
const historyCost = 2 * mib

// With as many pods as a kubelet allows, a full history costs the service little memory, even after
// every command that reads it. The first pass can still be explained, like the last.
func TestHistoryResident(t *testing.T) {
	const passes, pods = 1000, 110
	binary := filepath.Join(t.TempDir(), "criguard") // the race detector multiplies the memory
	build := exec.Command("go", "build", "-tags", "grpcnotrace,nethttpomithttp2", "-trimpath", "-ldflags", "-s -w", "-o", binary, "../../cmd/criguard")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	anonymous := map[int]int64{}
	for _, passes := range []int{0, passes} {
		t.Run(fmt.Sprint(passes), func(t *testing.T) {
			n := manyPods(t, pods)
			fillHistory(t, n.dir, passes, pods)
			raced := harness.Criguard
			harness.Criguard = binary
			s := n.startWith(pods)
			harness.Criguard = raced
			for range 3 {
				for _, args := range [][]string{{"history", "--number", "0"}, {"history", "--since", "10000h"}, {"explain", "1"}, {"explain", "last"}, {"report"}} {
					a := n.criguard(n.args(args...)...)
					if passes > 0 && (a.Code != 0 || a.Err != "" || !strings.Contains(a.Out, "victim-1")) {
						t.Fatalf("%v: exit code %d, %d bytes, %s", args, a.Code, len(a.Out), a.Err)
					}
				}
			}
			if got := s.history(); len(got) < passes {
				t.Errorf("%d passes", len(got))
			}
			anonymous[passes] = s.leastAnonymous()
			t.Logf("anonymous memory with %d pods and %d passes: %.1f MiB", pods, passes, float64(anonymous[passes])/mib)
		})
	}
	if cost := anonymous[passes] - anonymous[0]; anonymous[0] == 0 || cost > historyCost {
		t.Errorf("a full history costs %.1f MiB, want %d at most", float64(cost)/mib, historyCost/mib)
	}
}

// manyPods returns a node of its own with a runtime that lists the given number of pods.
func manyPods(t *testing.T, pods int) *node {
	t.Helper()
	srv := critest.New(t, critest.Containerd2, critest.WithEvents())
	for i := range pods {
		srv.AddPod(critest.PodSpec{Name: fmt.Sprintf("pod-%d", i), Containers: []critest.ContainerSpec{{Image: "registry.local/app:1"}}})
	}
	n := &node{T: t, dir: t.TempDir()}
	text := fmt.Sprintf("mode = \"observe\"\n[history]\ndir = %q\n[runtime]\nendpoint = %q\n[node]\nroot_dir = %q\npod_log_dir = %q\npods_cgroup = \"/criguard-none\"\n",
		n.dir, srv.Endpoint(), t.TempDir(), t.TempDir())
	text += "[images]\nprune = \"never\"\n[containers]\ngc = false\n[eviction.hard]\n"
	for name := range policy.DefaultHard() {
		text += fmt.Sprintf("%q = \"0%%\"\n", name)
	}
	if err := os.WriteFile(n.config(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// leastAnonymous returns the lowest anonymous memory of the service within a few seconds: its heap and stacks. A listing
// takes extra memory briefly, and pods of other tests trigger listings.
func (s *service) leastAnonymous() int64 {
	s.Helper()
	least := int64(0)
	for range 50 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Cmd.Process.Pid))
		if err != nil {
			s.Fatal(err)
		}
		_, text, _ := strings.Cut(string(status), "RssAnon:")
		var kib int64
		if _, err := fmt.Sscan(text, &kib); err != nil {
			s.Fatal(err)
		}
		if least == 0 || kib<<10 < least {
			least = kib << 10
		}
		time.Sleep(100 * time.Millisecond)
	}
	return least
}

// fillHistory writes the history of a service that stopped a pod in each of its passes.
func fillHistory(t *testing.T, dir string, passes, pods int) {
	t.Helper()
	h := history.Open(dir, passes)
	for id := range passes {
		p := api.Pass{
			ID: uint64(id + 1), Time: time.Now().Add(time.Duration(id-passes) * time.Second), Wake: "timer",
			Stop: &api.StopView{Pod: fmt.Sprintf("shop/victim-%d", id+1), Signal: policy.MemoryAvailable.String(), Kind: "hard"},
		}
		for i := range pods {
			p.Ranked = append(p.Ranked, api.RankedView{
				Position: i + 1, Pod: fmt.Sprintf("namespace/pod-%d", i), QoS: "Burstable", Usage: 1 << 27, Known: true, Request: 1 << 26,
				Sandbox: fmt.Sprintf("%064d", i), UID: fmt.Sprintf("8a6e0b7f-3f1d-4c11-9a6e-%012d", i),
				Keys: []policy.KeyValue{{Key: policy.KeyOverRequest, Value: 1}, {Key: policy.KeyPriority}, {Key: policy.KeyUsage, Value: 1 << 26}},
			})
		}
		h.Add(p)
		if id%10 != 9 {
			continue
		}
		if err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}
