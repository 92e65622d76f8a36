package scenario

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/lab"
)

// Kinds of events.
const (
	Ready = "ready" // the agent is ready for orders
	Said  = "said"  // a line for the report
	Done  = "done"  // the order has been executed
)

// Order is one line to the agent: set the node up, or run a scenario on it.
type Order struct {
	Profile  Profile
	Scenario string        // empty: set up
	Seed     uint64        // of random faults
	Length   time.Duration // of random faults
	Tries    int           // how often a scenario repeats what must work every time; number of tries per guard and rate in a comparison
	Rebooted bool          // the scenario continues after a reboot
}

// Event is one line from the agent.
type Event struct {
	Kind     string
	Text     string   `json:",omitempty"`
	Try      *Try     `json:",omitempty"`
	Failures []string `json:",omitempty"`
	Wrong    bool     `json:",omitempty"` // an innocent pod was stopped
	Journal  string   `json:",omitempty"` // the end of the node's journal, if something failed
}

// resumeFile stores the order that a reboot interrupts.
const resumeFile = "/var/lib/node-order"

// Resumed returns the order that continues after a reboot.
func Resumed() (Order, bool) {
	text, err := os.ReadFile(resumeFile)
	if err != nil {
		return Order{}, false
	}
	var o Order
	return o, os.Remove(resumeFile) == nil && json.Unmarshal(text, &o) == nil
}

// NewNode returns the node that the agent runs on. All orders share it, and it is frozen with the
// machine.
func NewNode(tell func(Event)) *Node {
	return NewNodeOn(host{}, control.NewClient(rundir.Default), tell)
}

// NewNodeOn returns the node on a machine that is a node already. The client is one of criguard there.
func NewNodeOn(m Machine, guard *control.Client, tell func(Event)) *Node {
	return &Node{machine: m, guard: guard, tell: tell}
}

// Carry runs an order and returns the final event.
func (n *Node) Carry(o Order) Event {
	n.order, n.Profile, n.Rebooted = o, o.Profile, o.Rebooted
	// As in package testing, Fatalf ends its goroutine, so run the order in one of its own.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.carry()
	}()
	<-ended
	done := Event{Kind: Done, Failures: n.failures, Wrong: n.wrong}
	if len(n.failures) > 0 {
		done.Journal, _ = n.machine.Shell("journalctl -b -o short-monotonic --no-hostname | grep -vE 'level=info|\\]: I[0-9]{4} ' | tail -n 60 | tail -c 20000")
	}
	return done
}

func (n *Node) carry() {
	if h, ok := n.machine.(host); ok && h.Lab == nil {
		n.attach()
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

// attach turns the machine into a node, unless it is one that has rebooted, and connects to its runtime.
func (n *Node) attach() {
	if n.order.Scenario == "" {
		if err := setUp(n.Profile); err != nil {
			n.Fatalf("%v", err)
		}
		if n.Profile.Kubernetes {
			n.startKubernetes()
		}
	}
	var err error
	n.lab, err = lab.Attach(n.context(), lab.NodeOptions{
		Endpoint: endpoint, KubeletRoot: "/var/lib/kubelet", PodLogDir: "/var/log/pods", Systemd: n.Profile.Systemd,
	})
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.machine = host{n.lab}
}

// Victims returns the names of the pods that the scenario expects to be stopped: first those whose stop it has awaited, in that
// order, then the others.
func (n *Node) Victims() (awaited, others []string) {
	for _, p := range n.victims {
		awaited = append(awaited, p.Name)
	}
	for _, p := range n.pods {
		if p.stopped && !slices.Contains(n.victims, p) {
			others = append(others, p.Name)
		}
	}
	return awaited, others
}

// Fatalf fails the scenario and ends it.
func (n *Node) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}
