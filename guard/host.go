package guard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/mounts"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/stop"
	"github.com/criguard/criguard/reclaim"
)

// Default paths. The configuration or the node itself can override them.
const (
	defaultProc   = "/proc"
	defaultSys    = "/sys"
	defaultPodLog = "/var/log/pods"
)

// host is this node: the kernel, the runtime and the listed pods. It implements eviction.Runtime.
type host struct {
	conn    *cri.Connector
	cgroups reclaim.Cgroups
	layout  cgroup.Layout
	kernel  *node.Node
	disks   *disk.Watcher
	meter   *disk.Meter
	lister  *inventory.Lister
	podLogs string
	proc    cgroup.Proc
	bootID  string
	wake    func(string)              // requests a pass
	listed  func(inventory.Inventory) // called after each listing that was not abandoned
	mounts  *mounts.Watcher
	// subscribed is when the open stream of runtime events began (boot clock); 0 = no stream is open.
	subscribed atomic.Int64
	cfg        atomic.Pointer[config.Config]
}

// detectCgroups finds the kernel's files.
func detectCgroups(cfg config.Node) (cgroup.Layout, cgroup.Proc, error) {
	proc := cgroup.Proc(cmp.Or(cfg.Proc, defaultProc))
	layout, err := cgroup.Detect(cgroup.Root(filepath.Join(cmp.Or(cfg.Sys, defaultSys), "fs/cgroup")), proc)
	if err != nil {
		return layout, proc, fmt.Errorf("%w (hint: [node] sys and proc say where they are mounted)", err)
	}
	return layout, proc, nil
}

// openHost opens the kernel's files. It does not call the runtime yet.
func openHost(cfg config.Config, m machine.Machine) (*host, error) {
	roots := node.KubeletRoots(cfg.Node.RootDir)
	root := node.FindKubeletRoot(roots)
	layout, proc, err := detectCgroups(cfg.Node)
	if err != nil {
		return nil, err
	}
	h := &host{
		cgroups: m.Cgroups(layout), layout: layout, disks: disk.NewWatcher(root, m.Statfs), wake: func(string) {},
		podLogs: cmp.Or(cfg.Node.PodLogDir, defaultPodLog), proc: proc,
	}
	h.mounts = mounts.New(mounts.Options{Layout: layout, Proc: proc, KubeletRoots: roots, PodLogs: h.podLogs})
	h.cfg.Store(&cfg)
	if h.bootID, err = cgroup.BootID(proc); err != nil {
		return nil, err
	}
	h.meter = disk.NewMeter(disk.MeterOptions{
		Source: func() (disk.LayerSource, error) { return h.conn.Client() },
		Logs:   h.podLogs, Paths: h.disks.Paths, Now: m.BootTime, Tree: m.Tree, Statfs: m.Statfs, Mounts: m.Mounts,
	})
	h.kernel, err = node.Open(node.Options{
		Layout: layout, Proc: proc, PodsCgroup: cfg.Node.PodsCgroup, KubeletRoot: root,
		StallWindow: cfg.Eviction.StallWindow, Now: m.BootTime, Disks: h.disks, Meter: h.meter, NewWaker: m.NewWaker,
	})
	if err != nil {
		return nil, err
	}
	h.lister = inventory.New(inventory.Options{
		Config: cfg, Source: h.connect, Layout: layout, Proc: proc, Capacity: h.kernel.Capacity, KubeletRoot: h.kubeletRoot, Refresh: h.readDiskPaths,
		Track: h.kernel.Track, Publish: func(inv inventory.Inventory) { h.listed(inv) }, Now: m.BootTime, Clock: time.Now,
	})
	h.listed = func(inv inventory.Inventory) { h.kernel.Sweep(inv.Pods) }
	h.conn = cri.NewConnector(h.connectorOptions(cfg.Runtime, m))
	return h, nil
}

// checkCgroups returns an error if criguard could enforce nothing at once in a mode. In observe mode it may run.
func (h *host) checkCgroups(mode config.Mode) error {
	if mode == config.ModeEnforce && h.layout.ReadOnly() {
		return mounts.ErrReadOnlyCgroups
	}
	return nil
}

// kubeletRoot returns the kubelet's root directory.
func (h *host) kubeletRoot() string { return h.disks.Paths().Node }

// lookAtMounts returns which parts of the node are not visible, and keeps that for the status. It finds the kubelet's root directory
// when pods are in another one.
func (h *host) lookAtMounts(ctx context.Context) []string {
	root := h.kubeletRoot()
	missing, found := h.mounts.Look(ctx, h.lister.Current(), root, h.disks.Paths().Image, h.config().Runtime.Endpoint)
	if found != root {
		h.disks.UpdatePaths(func(p *disk.Paths) { p.Node = found })
	}
	return missing
}

// connectorOptions configures the connector to find the runtime that has this node's pods.
func (h *host) connectorOptions(cfg config.Runtime, m machine.Machine) cri.ConnectorOptions {
	return cri.ConnectorOptions{
		Network: m.Runtime, Endpoint: cfg.Endpoint, Timeout: cfg.Timeout, Crictl: node.CrictlEndpoint(), Now: m.BootTime,
		Pods: func() int { return len(h.lister.Current().Pods) },
	}
}

// logs returns the pods' log directories.
func (h *host) logs() reclaim.Logs { return reclaim.Logs{Dir: h.podLogs, Mounts: mountinfo.Points} }

// gcOptions configures garbage collection on this node.
func (h *host) gcOptions(log *slog.Logger, record func(api.ReclaimView, *api.Peer)) gc.Options {
	return gc.Options{
		Config: h.config(), BootID: h.bootID, Log: log, Record: record, Wake: func() { h.wake("reclaim") }, Client: h.conn.Client,
		RuntimeSince: h.runtimeSince, Now: h.kernel.Now, Memory: h.layout, Logs: h.logs(),
		Disks: h.disks, Meter: h.meter, Lister: h.lister, Node: h.kernel,
	}
}

// stopOptions configures the stops of pods on this node.
func (h *host) stopOptions(stopping func(inventory.Pod)) stop.Options {
	return stop.Options{
		Config: h.config, Runtime: h.conn, Cgroups: h.cgroups, Logs: h.logs(), Stopping: stopping, Ended: func() { h.wake("stop") },
	}
}

// Close releases everything that openHost opened.
func (h *host) Close() {
	h.conn.Close()
	h.kernel.Close()
	h.disks.Close()
}

func (h *host) config() config.Config { return *h.cfg.Load() }

// setConfig applies a new configuration, as far as it can change while the service runs. The node's paths and
// the connection to the runtime stay. Call it from the loop's goroutine.
func (h *host) setConfig(cfg config.Config) {
	h.cfg.Store(&cfg)
	h.kernel.Reconfigure(cfg.Eviction.StallWindow)
	h.lister.SetConfig(cfg)
}

func (h *host) interval() time.Duration { return h.config().Eviction.Interval }

// Inventory implements eviction.Runtime.
func (h *host) Inventory(ctx context.Context, wait time.Duration) inventory.Inventory {
	if wait > 0 {
		return h.lister.Next(ctx, wait)
	}
	return h.lister.Current()
}

// connect makes sure that a runtime answers, and returns a client for it.
func (h *host) connect(ctx context.Context) (inventory.Source, error) {
	if err := h.conn.Connect(ctx); err != nil {
		return nil, err
	}
	return h.conn.Client()
}

// runtimeSince returns since when the runtime has answered (boot clock): the start of its process, or if that
// is unknown the time when it came back. 0 = it has always answered.
func (h *host) runtimeSince() time.Duration {
	if pid := h.conn.PID(); pid != 0 {
		if start, err := cgroup.ProcessStart(h.proc, pid); err == nil {
			return start
		}
	}
	return h.conn.Since()
}

// readDiskPaths asks the runtime where it keeps its images and layers.
func (h *host) readDiskPaths(ctx context.Context) {
	client, err := h.conn.Client()
	if err != nil {
		return
	}
	images, containers, err := client.ImageFilesystems(ctx)
	if err != nil || len(images) == 0 {
		return
	}
	h.disks.UpdatePaths(func(p *disk.Paths) {
		p.Image, p.Container = images[0].Mountpoint, ""
		if len(containers) > 0 {
			p.Container = containers[0].Mountpoint
		}
	})
}

// lockNode locks what one criguard alone may enforce. It returns rundir.ErrRunning with the run directory of
// the criguard that has the lock. missed are the locks that LockNode could not take.
func lockNode(opt ServiceOptions) (unlock func(), missed []string, err error) {
	names, err := nodeLocks(opt.Config)
	if err != nil {
		return nil, nil, err
	}
	return opt.Machine.LockNode(opt.Dir, names...)
}

func nodeLocks(cfg config.Config) ([]string, error) {
	layout, _, err := detectCgroups(cfg.Node)
	if err != nil {
		return nil, err
	}
	return node.Locks(layout, cfg.Node.PodsCgroup, cfg.Runtime.Endpoint)
}
