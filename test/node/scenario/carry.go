package scenario

import (
	"encoding/json"
	"os"
	"runtime"

	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/lab"
)

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
	return &Node{guard: control.NewClient(rundir.Default), tell: tell}
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
		done.Journal, _ = shell("journalctl -b -o short-monotonic --no-hostname | grep -vE 'level=info|\\]: I[0-9]{4} ' | tail -n 60 | tail -c 20000")
	}
	return done
}

func (n *Node) carry() {
	if n.order.Scenario == "" {
		if err := setUp(n.Profile); err != nil {
			n.Fatalf("%v", err)
		}
		if n.Profile.Kubernetes {
			n.startKubernetes()
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
