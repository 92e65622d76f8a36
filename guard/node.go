package guard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Where things are unless the configuration or the node itself says otherwise.
const (
	defaultProc   = "/proc"
	defaultSys    = "/sys"
	defaultPodLog = "/var/log/pods"
)

// kubeletRoots are where kubelets keep their pods, the usual place first.
var kubeletRoots = []string{
	"/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet",
}

// node is this node: the kernel, the runtime, and what is known of its pods. It
// is the Runtime of the guard.
type node struct {
	conn    *Conn
	kernel  *nodeKernel
	lister  *lister
	meter   *diskMeter
	kubelet *kubeletState
	podLogs string
	proc    cgroup.Proc
	bootID  string
	wake    func(string) // asks for a pass
	self    *ownPlace
	// subscribed is since when, on the boot clock, a stream of the runtime's events is
	// open; 0 = none is.
	subscribed atomic.Int64
	fresh      aside[Inventory] // a listing that the loop asked for

	mu    sync.Mutex
	cfg   Config
	facts nodeFacts
}

// openNode opens the kernel's files. The runtime is not asked yet.
func openNode(cfg Config) (*node, error) {
	root := defaultString(cfg.Node.RootDir, kubeletRoot())
	proc := cgroup.Proc(defaultString(cfg.Node.Proc, defaultProc))
	layout, err := cgroup.Detect(cgroup.Root(filepath.Join(defaultString(cfg.Node.Sys, defaultSys), "fs/cgroup")), proc)
	if err != nil {
		return nil, fmt.Errorf("%w (hint: [node] sys and proc say where they are mounted)", err)
	}
	n := &node{
		conn: NewConn(cfg.Runtime), kubelet: newKubeletState(root), cfg: cfg, wake: func(string) {},
		podLogs: defaultString(cfg.Node.PodLogDir, defaultPodLog), proc: proc,
	}
	if n.bootID, err = cgroup.BootID(proc); err != nil {
		return nil, err
	}
	pods := cfg.Node.PodsCgroup
	if pods == "" {
		pods, _, _ = layout.FindPods() // none = no kubelet here, or not yet
	}
	reader, err := cgroup.OpenNode(layout, pods)
	if err != nil {
		return nil, err
	}
	n.self = findSelf(layout, proc)
	n.kernel = &nodeKernel{
		layout: layout, node: reader, tracker: cgroup.NewTracker(layout), disks: newDiskReader(root),
	}
	if pods != "" {
		n.kernel.pods.Store(&pods)
	}
	n.kernel.window.Store(int64(cfg.Eviction.StallWindow))
	if info, err := reader.MemInfo(); err == nil {
		n.kernel.total.Store(info.Total)
	}
	n.meter = &diskMeter{
		source: func() (layerSource, error) { return n.conn.Client() },
		root:   root, logs: n.podLogs, now: n.kernel.Now,
	}
	n.kernel.meter = n.meter
	n.lister = &lister{
		source: n.connect, locate: n.located, build: n.build, refresh: n.refresh, publish: func(inv Inventory) { n.kernel.Track(inv.Pods) },
		now: n.kernel.Now, clock: time.Now, turn: make(chan struct{}, 1),
	}
	n.conn.pods = func() int { return len(n.lister.Current().Pods) }
	return n, nil
}

// Close closes everything.
func (n *node) Close() {
	n.conn.Close()
	if n.kernel.waker != nil {
		n.kernel.waker.Close()
	}
	n.kernel.tracker.Close()
	n.kernel.node.Close()
	n.kernel.disks.close()
}

func kubeletRoot() string {
	i := slices.IndexFunc(kubeletRoots, func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	})
	return kubeletRoots[max(i, 0)]
}

func defaultString(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (n *node) config() Config {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cfg
}

// setConfig puts another configuration in force, as far as it can change while
// the service runs: where the node's things are and how the runtime is reached
// stays.
func (n *node) setConfig(cfg Config) {
	n.mu.Lock()
	n.cfg = cfg
	n.mu.Unlock()
	n.kernel.window.Store(int64(cfg.Eviction.StallWindow))
	n.lister.Rejudge() // a pod that is protected now must not wait for the next listing
}

func (n *node) interval() time.Duration { return n.config().Eviction.Interval }

// Inventory gives the pods that run: as listed last, or listed now, as far as that does not keep
// the loop waiting for long.
func (n *node) Inventory(ctx context.Context, fresh bool) Inventory {
	if !fresh {
		return n.lister.Current()
	}
	ctx, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	n.fresh.get(ctx, func() Inventory { return n.lister.List(ctx) })
	return n.lister.Current() // by now it may be another listing's
}

// freshWait bounds what a listing may take when a stop waits for it, whatever it hangs in.
const freshWait = 250 * time.Millisecond

// connect makes sure that a runtime answers and learns what it says of itself.
func (n *node) connect(ctx context.Context) (podSource, error) {
	if err := n.conn.Connect(ctx); err != nil {
		return nil, err
	}
	return n.conn.Client()
}

// runtimeSince is since when the runtime answers: since its process was started, or
// since it came back where that cannot be told. 0 = it always did.
func (n *node) runtimeSince() time.Duration {
	client, err := n.conn.Client()
	if err == nil {
		if pid := serverPID(client); pid != 0 {
			if start, err := cgroup.ProcessStart(n.proc, pid); err == nil {
				return start
			}
		}
	}
	return n.conn.Since()
}

// refresh brings up to date what pods are judged by, before each listing.
func (n *node) refresh(ctx context.Context) {
	facts := nodeFacts{
		capacity: n.kernel.total.Load(), allocated: n.kubelet.read(ctx), self: n.self,
		resolve: n.kernel.layout.Resolve, memoryMin: n.kernel.layout.MemoryMin,
	}
	n.mu.Lock()
	n.facts = facts
	n.mu.Unlock()
	client, err := n.conn.Client()
	if err != nil {
		return
	}
	images, containers, err := client.ImageFilesystems(ctx)
	if err != nil || len(images) == 0 {
		return
	}
	paths := n.kernel.disks.getPaths()
	paths.image, paths.container = images[0].Mountpoint, ""
	if len(containers) > 0 {
		paths.container = containers[0].Mountpoint
	}
	n.kernel.disks.setPaths(paths)
}

// located completes the details of a container of which the runtime tells the process alone, as
// cri-dockerd does: its cgroup, and by what its class is known. A process whose cgroup does not bear
// the container's ID is none of its own, as of another PID namespace.
func (n *node) located(d cri.ContainerDetail) cri.ContainerDetail {
	if d.CgroupsPath != "" || d.PID == 0 {
		return d
	}
	rel, err := n.kernel.layout.OfPID(d.PID)
	if err != nil || !reclaim.BearsID(rel, d.ID) {
		return d
	}
	d.CgroupsPath = rel
	if adj, err := n.kernel.layout.OOMScoreAdj(d.PID); err == nil && !d.Resources.OOMScoreAdj.Known {
		d.Resources.OOMScoreAdj = cri.Number{Value: adj, Known: true}
	}
	return d
}

// build judges one pod.
func (n *node) build(s listed) Pod {
	n.mu.Lock()
	cfg, facts := n.cfg, n.facts
	n.mu.Unlock()
	p := cfg.derivePod(s, &facts)
	p.EndedImages = s.ended
	return p
}

// status fills in what the node knows.
func (g *Guard) status(n *node) Status {
	now := g.kernel.Now()
	inv := n.lister.Current()
	endpoint, v := n.conn.Version()
	st := Status{
		APIVersion: APIVersion, Mode: g.cfg.Mode.String(),
		Runtime:    RuntimeStatus{Endpoint: endpoint, Name: v.RuntimeName, Version: v.RuntimeVersion, Up: inv.Err == nil, ListedAt: -1},
		Kernel:     KernelStatus{Cgroup: n.kernel.Cgroup(), PodsCgroup: n.kernel.podsCgroup(), Layout: g.kernel.Layout().String(), Wakes: n.kernel.Wakes()},
		Conditions: conditionNames(g.pressure.Conditions),
		Signals:    []SignalStatus{}, Pods: len(inv.Pods), Budget: g.restraint.Status(now),
	}
	if inv.At >= 0 {
		st.Runtime.ListedAt = now - inv.At
	}
	if inv.Err != nil {
		st.Runtime.Error = inv.Err.Error()
	}
	for i := range inv.Pods {
		if inv.Pods[i].Protection != "" {
			st.Protected++
		}
	}
	for _, f := range g.flights {
		st.InFlight = append(st.InFlight, f.view.Pod+" for "+f.view.Signal)
	}
	for s := range policy.SignalCount {
		st.Signals = append(st.Signals, g.signalStatus(s, n.kernel))
		if g.met(s) && slices.Contains(st.Budget.Breakers, s) {
			st.Alarms = append(st.Alarms, breakerAlarm(s))
		}
	}
	if note := g.swapNote(n.kernel); note != "" {
		st.Warnings = append(st.Warnings, note)
	}
	return st
}

func (g *Guard) signalStatus(s policy.Signal, k *nodeKernel) SignalStatus {
	o := g.obs[s]
	st := SignalStatus{SignalView: SignalView{s, o.Available, o.Capacity, o.Status.String()}, Condition: s.Condition().String()}
	if o.Status != policy.OK {
		st.Error = k.Reason(s)
	}
	for _, t := range g.thresholds {
		if t.Signal != s {
			continue
		}
		ts := ThresholdStatus{Kind: t.Kind.String(), Value: t.Value.String(), Amount: t.Value.Of(o.Capacity), Grace: t.Grace}
		if !t.MinReclaim.IsZero() {
			ts.MinReclaim = t.MinReclaim.String()
		}
		for _, m := range g.pressure.Met {
			if m.Signal == s && m.Kind == t.Kind {
				ts.Met, ts.Due = true, m.Due
			}
		}
		st.Thresholds = append(st.Thresholds, ts)
	}
	return st
}

// rankNow ranks the pods that are listed for a signal as it is now. An answer keeps no
// decision waiting for the runtime.
func (g *Guard) rankNow(ctx context.Context, s policy.Signal) Ranking {
	var deficit int64
	for _, m := range g.pressure.Met {
		if m.Signal == s {
			deficit = max(deficit, m.Deficit)
		}
	}
	pods := g.runtime.Inventory(ctx, false).Pods
	cs, _, _ := g.measured(pods, s)
	o := g.obs[s]
	return Ranking{
		APIVersion: APIVersion, Signal: s, Available: o.Available, Capacity: o.Capacity,
		Keys: g.cfg.Rank.Keys(s.Resource()), Pods: rankedViews(g.ranked(cs, s, deficit), pods),
	}
}
