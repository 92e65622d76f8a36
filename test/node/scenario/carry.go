package scenario

import (
	"encoding/json"
	"os"
	"runtime"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/test/lab"
)

// resumeFile has the order that a reboot interrupts.
const resumeFile = "/var/lib/node-order"

// Resumed returns the order that goes on after a reboot.
func Resumed() (Order, bool) {
	text, err := os.ReadFile(resumeFile)
	if err != nil {
		return Order{}, false
	}
	var o Order
	return o, os.Remove(resumeFile) == nil && json.Unmarshal(text, &o) == nil
}

// NewNode returns the node that the agent runs on. It is the same for all orders, and is frozen with the machine.
func NewNode(tell func(Event)) *Node {
	return &Node{guard: guard.NewClient(guard.DefaultRunDir), tell: tell}
}

// Carry carries an order out and returns the event that ends it.
func (n *Node) Carry(o Order) Event {
	n.order, n.Profile, n.Rebooted = o, o.Profile, o.Rebooted
	// Like testing.T, Fatalf ends the goroutine that it is called in.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.carry()
	}()
	<-ended
	done := Event{Kind: Done, Failures: n.failures, Wrong: n.wrong}
	if len(n.failures) > 0 {
		done.Journal, _ = shell("journalctl -b -o short-monotonic --no-hostname | grep -v level=info | tail -n 60 | tail -c 20000")
	}
	return done
}

func (n *Node) carry() {
	if n.order.Scenario == "" {
		if err := setUp(n.Profile); err != nil {
			n.Fatalf("%v", err)
		}
	}
	if n.lab == nil {
		var err error
		n.lab, err = lab.Attach(n.context(), lab.NodeOptions{
			Endpoint: endpoint, KubeletRoot: "/var/lib/kubelet", PodLogDir: "/var/log/pods", Systemd: n.Profile.Systemd,
		})
		if err != nil {
			n.Fatalf("%v", err)
		}
	}
	if n.order.Scenario == "" {
		n.innocents()
		n.settled()
		n.before = n.tally()
		return
	}
	if n.Rebooted {
		n.before = n.tally()
	}
	s, ok := Find(n.order.Scenario)
	if !ok {
		n.Fatalf("no scenario %q", n.order.Scenario)
	}
	s.Run(n)
	if !n.unchecked {
		n.check()
	}
}

// Fatalf fails the scenario and ends it.
func (n *Node) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}
