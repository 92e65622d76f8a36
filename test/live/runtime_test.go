package live_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// The runtime is killed, comes back, and is missing at the start: each is said
// once, and the rest goes on.
func TestRuntimeComesAndGoes(t *testing.T) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) {
			l := lab.Shared(t, runtime)
			n := newLive(t, l)
			n.pod(lab.PodSpec{Name: "stays", Containers: one("pause")})
			n.configure("[eviction.hard]\n" + off)
			n.start()
			n.until("the pod to be listed", func() bool { st := n.status(); return st.Runtime.Up && st.Pods == 1 })
			if err := l.KillContainerd(); err != nil {
				t.Fatal(err)
			}
			n.until("the loss to be noticed", func() bool { return !n.status().Runtime.Up })
			first := n.status()
			n.until("memory to be watched on", func() bool {
				st := n.status()
				return st.Uptime-first.Uptime > 3*time.Second && st.Pods == 1
			})
			if got := count(n.logged(), `msg="container runtime does not answer`); got != 1 {
				t.Errorf("said %d times that the runtime does not answer, want once", got)
			}
			if err := l.RestartContainerd(context.Background()); err != nil {
				t.Fatal(err)
			}
			n.until("the runtime to be found again", func() bool { return n.status().Runtime.Up })
			n.until("that to be said", func() bool { return count(n.logged(), `msg="container runtime answers"`) == 2 })
			n.stop()

			if err := l.KillContainerd(); err != nil {
				t.Fatal(err)
			}
			late := newLive(t, l)
			late.configure("[eviction.hard]\n" + off)
			late.start()
			if st := late.status(); st.Runtime.Up || len(st.Signals) == 0 {
				t.Errorf("without a runtime: %+v", st.Runtime)
			}
			if err := l.RestartContainerd(context.Background()); err != nil {
				t.Fatal(err)
			}
			late.until("the late runtime", func() bool { st := late.status(); return st.Runtime.Up && st.Pods == 1 })
		})
	}
}

// A second guard refuses to start beside the first and names it.
func TestSecondInstanceRefuses(t *testing.T) {
	n := newLive(t, lab.Shared(t, lab.Containerd1))
	n.configure("[eviction.hard]\n" + off)
	n.start()
	out, err := exec.Command(binary, n.args("run")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another criguard is running (pid ") {
		t.Errorf("the second one: %v: %s", err, out)
	}
}
