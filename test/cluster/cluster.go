package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/lab"
)

// Options describe the cluster.
type Options struct {
	EvictionHard map[string]string // the kubelet's hard thresholds; nil keeps it from evicting
	// The kubelet removes images while their filesystem is fuller than ImageGCHigh, down to ImageGCLow, in
	// percent. 0 keeps it from that.
	ImageGCHigh, ImageGCLow int

	Say func(format string, args ...any) // called for steps that take time; nil is silent
}

// Cluster is a running cluster of one node.
type Cluster struct {
	*API
	lab *lab.Lab

	etcd, apiServer, kubelet *lab.Daemon

	undo []func() error // restores the machine, last step first
}

// Start starts a cluster on a lab. Close it before the lab.
func Start(ctx context.Context, l *lab.Lab, options Options) (*Cluster, error) {
	programs, err := lab.InstallKubernetes(ctx, options.Say)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	c := &Cluster{lab: l}
	if err := c.start(ctx, programs, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, programs lab.Kubernetes, options Options) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	setup := Setup{
		Dir: filepath.Join(c.lab.Dir(), "cluster"), KubeletRoot: c.lab.KubeletRoot(), Programs: programs,
		EtcdPort: ports[0], ServerPort: ports[1], KubeletPort: ports[2],
	}
	setup.KubeletConfig = object{
		"containerRuntimeEndpoint": c.lab.Endpoint(),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": c.lab.Cgroup(), "failCgroupV1": false, "enforceNodeAllocatable": []string{},
		"podLogsDir": c.lab.PodLogDir(), "volumePluginDir": setup.path("volumeplugins"), "maxPods": maxPods, "imageMinimumGCAge": "1s",
	}
	maps.Copy(setup.KubeletConfig, options.fields())
	if c.API, err = setup.Write(); err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		return err
	}
	if c.etcd, err = c.daemon(ctx, "etcd", setup.Etcd(), c.EtcdServes); err != nil {
		return err
	}
	if c.apiServer, err = c.daemon(ctx, "kube-apiserver", setup.APIServer(), c.Serves); err != nil {
		return err
	}
	return c.StartKubelet(ctx)
}

// maxPods is the kubelet's default and one pod more, for a leak.
const maxPods = 111

// fields returns the options as fields of the kubelet's configuration.
func (o Options) fields() object {
	hard := o.EvictionHard
	if hard == nil {
		hard = map[string]string{"memory.available": "1Mi"} // signals that it does not name are off
	}
	return object{
		"evictionHard":                hard,
		"imageGCHighThresholdPercent": cmp.Or(o.ImageGCHigh, 100), "imageGCLowThresholdPercent": cmp.Or(o.ImageGCLow, 80),
	}
}

// prepare prepares the machine for a kubelet.
func (c *Cluster) prepare() error {
	if err := c.lab.PrepareKubelet(); err != nil {
		return err
	}
	for path, target := range map[string]string{"/var/lib/kubelet": c.lab.KubeletRoot(), "/var/log/containers": c.setup.path("containers")} {
		if err := c.link(path, target); err != nil {
			return err
		}
	}
	// The kubelet sets these (setupKernelTunables).
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		if err := c.keep("/proc/sys/" + name); err != nil {
			return err
		}
	}
	return nil
}

// daemon starts a program of the cluster and waits until it serves.
func (c *Cluster) daemon(ctx context.Context, name string, command []string, serves func(context.Context) (bool, error)) (*lab.Daemon, error) {
	d, err := c.lab.StartDaemon(name, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	return d, d.WaitReady(ctx, serves)
}

// StartKubelet starts the kubelet and waits until it serves and its node is ready.
func (c *Cluster) StartKubelet(ctx context.Context) (err error) {
	c.kubelet, err = c.daemon(ctx, "kubelet", c.setup.Kubelet(), c.KubeletServes)
	return err
}

// Reconfigure restarts the kubelet with other options. Pods keep running.
func (c *Cluster) Reconfigure(ctx context.Context, options Options) error {
	if err := c.StopKubelet(); err != nil {
		return err
	}
	if err := c.ConfigureKubelet(options.fields()); err != nil {
		return err
	}
	return c.StartKubelet(ctx)
}

// StopKubelet ends the kubelet as a service manager does. Pods keep running.
func (c *Cluster) StopKubelet() error { return c.kubelet.End(unix.SIGTERM) }

// PauseKubelet freezes the kubelet (SIGSTOP).
func (c *Cluster) PauseKubelet() error { return c.kubelet.Pause() }

// ResumeKubelet resumes the kubelet.
func (c *Cluster) ResumeKubelet() error { return c.kubelet.Resume() }

// Close ends the cluster's processes and restores the machine. Pods and files remain until the lab is
// closed.
func (c *Cluster) Close() error {
	var errs []error
	for _, d := range []*lab.Daemon{c.kubelet, c.apiServer, c.etcd} {
		errs = append(errs, d.End(unix.SIGKILL))
	}
	for _, undo := range slices.Backward(c.undo) {
		errs = append(errs, undo())
	}
	c.undo = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close cluster: %w", err)
	}
	return nil
}

// freePorts returns ports that are free on the loopback interface now.
func freePorts(count int) (ports []int, err error) {
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		defer l.Close() // at the end, so that each port is another one
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, int(at.Port()))
	}
	return ports, nil
}

// link makes a fixed directory of the kubelet a link to a directory of the lab until Close. A link
// that leads nowhere is left from a cluster whose owner was killed.
func (c *Cluster) link(path, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if old, err := os.Readlink(path); err == nil {
		if _, err := os.Stat(old); errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(path)
		}
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("%w (hint: another kubelet uses this machine)", err)
	}
	c.undo = append(c.undo, func() error { return os.Remove(path) })
	return nil
}

// keep restores a kernel parameter on Close.
func (c *Cluster) keep(path string) error {
	value, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c.undo = append(c.undo, func() error { return os.WriteFile(path, value, 0) })
	return nil
}
