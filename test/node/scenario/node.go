package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/lab"
)

// patience limits waits for conditions that normally take a moment; emulation is slow.
const patience = 100 * time.Second

// Node is the machine, as scenarios see it.
type Node struct {
	Profile  Profile
	Rebooted bool // this is the scenario's second run, after Reboot

	order    Order
	machine  Machine
	lab      *lab.Lab // nil on a simulated machine
	guard    *control.Client
	api      *cluster.API // nil if the profile has no kubelet
	listed   time.Time    // when it last listed the pods
	tell     func(Event)
	pods     []*Pod
	victims  []*Pod // those whose stop the scenario has awaited, in order
	before   tally
	failures []string
	wrong    bool // an innocent pod was stopped

	kernelKills int  // OOM kills that the scenario expects
	unchecked   bool // the scenario only measures, so the final check is skipped
	ended       bool // the scenario ended criguard, so restarts do not count
}

// Pod is a running pod with its original processes.
type Pod struct {
	*lab.RunningPod
	pids     []int // of its containers
	standing bool  // runs from the start, for all scenarios
	stopped  bool  // the scenario expects a stop
	removed  bool
}

// ID returns the pod's name in criguard's notation.
func (p *Pod) ID() string { return p.Namespace + "/" + p.Name }

// Sayf adds a text to the scenario's line in the report.
func (n *Node) Sayf(format string, args ...any) {
	n.tell(Event{Kind: Said, Text: fmt.Sprintf(format, args...)})
}

// Errorf fails the scenario but lets it continue.
func (n *Node) Errorf(format string, args ...any) {
	n.failures = append(n.failures, fmt.Sprintf(format, args...))
}

// Wrongf fails the scenario without a second attempt: an innocent pod was stopped.
func (n *Node) Wrongf(format string, args ...any) {
	n.wrong = true
	n.Errorf(format, args...)
}

// context returns a context for one call to the runtime or the service.
func (n *Node) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	time.AfterFunc(patience, cancel)
	return ctx
}

// Until waits for done, and ends the scenario on timeout.
func (n *Node) Until(what string, done func() bool) { n.Within(what, patience, done) }

// Within is Until with a timeout of its own.
func (n *Node) Within(what string, limit time.Duration, done func() bool) {
	if err := poll(what, limit, done); err != nil {
		n.Fatalf("%v", err)
	}
}

// Shell runs a command as root and ends the scenario if it fails.
func (n *Node) Shell(command string) string {
	out, err := n.machine.Shell(command)
	if err != nil {
		n.Fatalf("%v", err)
	}
	return out
}

// Configure restarts criguard with a new configuration, and waits until criguard knows all pods.
func (n *Node) Configure(config string) {
	n.Write(configFile, config)
	n.Shell("systemctl restart criguard")
	n.Shell("criguard reload --now") // some scenarios begin with a threshold that is met
	n.settled()
}

// Write writes a file.
func (n *Node) Write(path, text string) {
	if err := n.machine.Write(path, text); err != nil {
		n.Fatalf("%v", err)
	}
}

// settled waits until criguard answers and has listed all running pods.
func (n *Node) settled() {
	running := 0
	for _, p := range n.pods {
		if !p.stopped && !p.removed {
			running++
		}
	}
	n.Until("criguard that knows all pods", func() bool {
		s, err := n.guard.Status(n.context())
		return err == nil && s.Runtime.Up && s.Runtime.ListedAt != nil && s.Pods >= running
	})
}

// Run starts a pod with one container that misbehaves as args say; see test/lab/workload.
func (n *Node) Run(spec lab.PodSpec, args ...string) *Pod {
	spec.Containers = []lab.ContainerSpec{{Name: "main", Args: args}}
	return n.RunPod(spec)
}

// primed starts a pod that leaks once let is called.
func (n *Node) primed() (p *Pod, let func()) {
	const name = "leaky"
	n.disarm(name)
	return n.RunPod(primed(name, "hog", "-mib", "4096")), func() { n.arm(name) }
}

// triggers is in memory, so that it is writable in any state of the disk.
const triggers = "/run/trigger"

// primed returns a pod whose program waits for arm.
func primed(name string, args ...string) lab.PodSpec {
	return lab.PodSpec{Name: name, Containers: []lab.ContainerSpec{{
		Name: "main", Args: append(args, "-when", "/trigger/"+name), Mounts: []lab.Mount{{Host: triggers, Container: "/trigger"}},
	}}}
}

// arm lets a primed pod begin, and disarm makes it wait when it starts again.
func (n *Node) arm(name string) { n.Write(filepath.Join(triggers, name), "") }
func (n *Node) disarm(name string) {
	n.Shell("mkdir -p " + triggers + " && rm -f " + filepath.Join(triggers, name))
}

// RunPod starts a pod, and ends the scenario if that fails.
func (n *Node) RunPod(spec lab.PodSpec) *Pod {
	p, err := n.launch(spec)
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.pods = append(n.pods, p)
	return p
}

// launch starts a pod without adding it to the node's pods. If a step fails, it removes what it has
// started.
func (n *Node) launch(spec lab.PodSpec) (*Pod, error) {
	if n.api != nil {
		p, err := n.create(podOf(spec))
		if err == nil {
			spec.Namespace, spec.UID = p.Namespace, p.UID
			p.PodSpec = spec
		}
		return p, err
	}
	running, err := n.machine.RunPod(n.context(), spec)
	if err != nil {
		return nil, err
	}
	p := &Pod{RunningPod: running}
	for _, id := range running.ContainerIDs() {
		pid, err := n.machine.PID(n.context(), id)
		if err != nil {
			return nil, errors.Join(err, n.machine.RemovePod(n.context(), running))
		}
		p.pids = append(p.pids, pid)
	}
	return p, nil
}

// innocents starts a pod of each QoS class, with some memory in use. They run in every scenario,
// and no scenario may affect them.
func (n *Node) innocents() {
	const small = 24
	args := []string{"hog", "-mib", "16"}
	n.Run(lab.PodSpec{Name: "guaranteed", MemoryLimit: small << 21}, args...)
	n.Run(lab.PodSpec{Name: "burstable", MemoryRequest: small << 20}, args...)
	n.Run(lab.PodSpec{Name: "besteffort"}, "pause")
	for _, p := range n.pods {
		p.standing = true
	}
}

// Status returns criguard's status.
func (n *Node) Status() api.Status {
	s, err := n.guard.Status(n.context())
	if err != nil {
		n.Fatalf("%v", err)
	}
	return s
}

// signal returns a signal as criguard sees it.
func (n *Node) signal(signal policy.Signal) api.SignalView {
	for _, s := range n.Status().Signals {
		if s.Signal == signal {
			return s.SignalView
		}
	}
	n.Fatalf("%s is not observed", signal)
	return api.SignalView{}
}

// Available returns the available amount of a signal, as criguard sees it.
func (n *Node) Available(signal policy.Signal) int64 { return n.signal(signal).Available }

// Reboot reboots the node. Afterwards the scenario runs again from its beginning, with Rebooted set
// and without pods.
func (n *Node) Reboot() {
	o := n.order
	o.Rebooted = true
	text, err := json.Marshal(o)
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.Write(resumeFile, string(text))
	n.Shell("sync; systemctl reboot")
	select {} // the reboot ends the agent
}

// Condition reports whether a condition is set.
func (n *Node) Condition(name string) bool {
	return slices.ContainsFunc(n.Status().Conditions.List(), func(c policy.Condition) bool { return c.String() == name })
}
