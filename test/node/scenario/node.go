package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// patience is for what takes a moment on a good day. Emulation has none.
const patience = 100 * time.Second

// Node is the machine, as scenarios see it.
type Node struct {
	Profile  Profile
	Rebooted bool // the scenario is running for the second time, after Reboot

	order    Order
	lab      *lab.Lab
	guard    *guard.Client
	tell     func(Event)
	pods     []*Pod
	before   tally
	failures []string
	wrong    bool // somebody innocent was stopped

	kernelKills int  // that the scenario accounts for
	unchecked   bool // the scenario measures, and what happens is what it measures
	ended       bool // criguard was ended by the scenario, so its restarts do not count
}

// Pod is a running pod, and what it was when it began.
type Pod struct {
	*lab.RunningPod
	pids     []int // of its containers
	standing bool  // there from the start, for all scenarios
	stopped  bool  // the scenario wants it stopped
	removed  bool
}

// ID is how criguard names the pod.
func (p *Pod) ID() string { return p.Namespace + "/" + p.Name }

// Sayf adds to the scenario's line in the report.
func (n *Node) Sayf(format string, args ...any) {
	n.tell(Event{Kind: Said, Text: fmt.Sprintf(format, args...)})
}

// Errorf fails the scenario, which goes on.
func (n *Node) Errorf(format string, args ...any) {
	n.failures = append(n.failures, fmt.Sprintf(format, args...))
}

// Wrongf fails the scenario for good: somebody innocent was stopped.
func (n *Node) Wrongf(format string, args ...any) {
	n.wrong = true
	n.Errorf(format, args...)
}

// context is for one call to the runtime or the service.
func (n *Node) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	time.AfterFunc(patience, cancel)
	return ctx
}

// Until waits for done, and ends the scenario if it does not come.
func (n *Node) Until(what string, done func() bool) { n.Within(what, patience, done) }

// Within is Until for what takes longer, or must be sooner.
func (n *Node) Within(what string, limit time.Duration, done func() bool) {
	if err := poll(what, limit, done); err != nil {
		n.Fatalf("%v", err)
	}
}

// Shell runs a command as root and ends the scenario if it fails.
func (n *Node) Shell(command string) string {
	out, err := shell(command)
	if err != nil {
		n.Fatalf("%v", err)
	}
	return out
}

// Configure puts a configuration in force by a restart, and waits until criguard knows all pods.
func (n *Node) Configure(config string) {
	n.Write(configFile, config)
	n.Shell("systemctl restart criguard")
	n.settled()
}

// Write writes a file.
func (n *Node) Write(path, text string) {
	if err := write(path, text); err != nil {
		n.Fatalf("%v", err)
	}
}

// settled waits until criguard answers and has listed what runs.
func (n *Node) settled() {
	running := 0
	for _, p := range n.pods {
		if !p.stopped && !p.removed {
			running++
		}
	}
	n.Until("criguard that knows all pods", func() bool {
		s, err := n.guard.Status(n.context())
		return err == nil && s.Runtime.Up && s.Runtime.ListedAt >= 0 && s.Pods >= running
	})
}

// Run starts a pod of one container whose program misbehaves as args say; see test/lab/workload.
func (n *Node) Run(spec lab.PodSpec, args ...string) *Pod {
	spec.Containers = []lab.ContainerSpec{{Name: "main", Args: args}}
	return n.RunPod(spec)
}

// primed starts a pod that leaks when it is let.
func (n *Node) primed() (p *Pod, let func()) {
	const dir = "/run/trigger" // in memory: it can be written to whatever becomes of the disk
	n.Shell("mkdir -p " + dir)
	p = n.RunPod(lab.PodSpec{Name: "leaky", Containers: []lab.ContainerSpec{{
		Name: "main", Args: []string{"hog", "-mib", "4096", "-when", "/trigger/go"}, Mounts: []lab.Mount{{Host: dir, Container: "/trigger"}},
	}}})
	return p, func() { n.Write(dir+"/go", "") }
}

// RunPod starts a pod and ends the scenario if it does not start.
func (n *Node) RunPod(spec lab.PodSpec) *Pod {
	p, err := n.launch(spec)
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.pods = append(n.pods, p)
	return p
}

// launch starts a pod that is not among the node's own yet. What it started is removed again if something fails.
func (n *Node) launch(spec lab.PodSpec) (*Pod, error) {
	running, err := n.lab.RunPod(n.context(), spec)
	if err != nil {
		return nil, err
	}
	p := &Pod{RunningPod: running}
	for _, id := range running.ContainerIDs() {
		pid, err := n.lab.PID(n.context(), id)
		if err != nil {
			return nil, errors.Join(err, n.lab.RemovePod(n.context(), running))
		}
		p.pids = append(p.pids, pid)
	}
	return p, nil
}

// innocents starts a pod of each QoS class, with some memory in use. They are there in every scenario, and nobody may touch them.
func (n *Node) innocents() {
	const small = 24
	args := []string{"hog", "-mib", "16"}
	n.Run(lab.PodSpec{Name: "guaranteed", MemoryRequest: small << 20, MemoryLimit: small << 21}, args...)
	n.Run(lab.PodSpec{Name: "burstable", MemoryRequest: small << 20}, args...)
	n.Run(lab.PodSpec{Name: "besteffort"}, "pause")
	for _, p := range n.pods {
		p.standing = true
	}
}

// Status asks criguard how things are.
func (n *Node) Status() guard.Status {
	s, err := n.guard.Status(n.context())
	if err != nil {
		n.Fatalf("%v", err)
	}
	return s
}

// signal is a signal as criguard sees it.
func (n *Node) signal(signal policy.Signal) guard.SignalView {
	for _, s := range n.Status().Signals {
		if s.Signal == signal {
			return s.SignalView
		}
	}
	n.Fatalf("%s is not observed", signal)
	return guard.SignalView{}
}

// Available is what a signal has, as criguard sees it.
func (n *Node) Available(signal policy.Signal) int64 { return n.signal(signal).Available }

// Reboot reboots the node. The scenario runs again from its beginning then, with Rebooted set, and without pods.
func (n *Node) Reboot() {
	o := n.order
	o.Rebooted = true
	text, err := json.Marshal(o)
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.Write(resumeFile, string(text))
	n.Shell("sync; systemctl reboot")
	select {} // the agent ends with the node
}

// Condition says whether a condition holds.
func (n *Node) Condition(name string) bool {
	for _, c := range n.Status().Conditions {
		if c == name {
			return true
		}
	}
	return false
}
