package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/test/lab"
)

const (
	mib = 1 << 20
	// podBytes is how much of its node's filesystem a pod takes.
	podBytes = 2 * mib
	// podsPerNode is how many pods a node runs, and workloads of how many workloads they are.
	podsPerNode, workloads = 6, 24
	// recreateAfter is how long after a stop the replacement of a pod runs: later than a guard needs to see the effect
	// of the stop, which a replacement would hide.
	recreateAfter = 30 * time.Second
)

// podRuntime runs the pods of a node. Each has a file in an emptyDir.
type podRuntime interface {
	// run runs a pod of a workload.
	run(ctx context.Context, workload string, n int) (runningPod, error)
}

// runningPod is a pod on either runtime.
type runningPod interface {
	// file is the pod's file on the node.
	file() string
	// stopped reports whether the runtime has stopped the pod.
	stopped(ctx context.Context) (bool, error)
	// remove removes the pod and its files, as a kubelet does with a pod that was stopped.
	remove(ctx context.Context) error
}

// podName returns the name and the labels of a pod of a Deployment.
func podName(workload string, n int) (name string, labels map[string]string) {
	return fmt.Sprintf("%s-5d4f8-%05d", workload, n), map[string]string{"pod-template-hash": "5d4f8"}
}

// workloadOf returns the workload of a pod, "namespace/name".
func workloadOf(pod string) string { return pod[:strings.Index(pod, "-5d4f8-")] }

const emptyDir = "volumes/kubernetes.io~empty-dir/data"

// fakeRuntime is a fake runtime. Its pods have real files, and cgroups in a fake sysfs.
type fakeRuntime struct {
	server *critest.Server
	root   string // the kubelet's
	sys    string // sysfs
}

type fakePod struct {
	fakeRuntime
	critest.Pod
}

func (f fakeRuntime) run(_ context.Context, workload string, n int) (runningPod, error) {
	name, labels := podName(workload, n)
	p := fakePod{f, f.server.AddPod(critest.PodSpec{Name: name, Namespace: "shop", Labels: labels, Containers: []critest.ContainerSpec{{}}})}
	for _, dir := range []string{filepath.Dir(p.file()), p.cgroup()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return p, errors.Join(
		os.WriteFile(p.file(), make([]byte, podBytes), 0o600),
		os.WriteFile(filepath.Join(p.cgroup(), "cgroup.procs"), nil, 0o600),
		p.populate(1))
}

// cgroup returns the directory of the container's cgroup.
func (p fakePod) cgroup() string { return filepath.Join(p.sys, "fs/cgroup", p.Containers[0].Cgroup) }

// populate sets whether the container's cgroup has a process.
func (p fakePod) populate(populated int) error {
	return os.WriteFile(filepath.Join(p.cgroup(), "cgroup.events"), fmt.Appendf(nil, "populated %d\nfrozen 0\n", populated), 0o600)
}

func (p fakePod) dir() string  { return filepath.Join(p.root, "pods", p.UID) }
func (p fakePod) file() string { return filepath.Join(p.dir(), emptyDir, "fill") }

func (p fakePod) stopped(context.Context) (bool, error) {
	called := func(method, id string) bool {
		return slices.ContainsFunc(p.server.Calls(method), func(c critest.Call) bool { return c.ID == id && c.Took > 0 })
	}
	if !called("StopContainer", p.Containers[0].ID) {
		return false, nil
	}
	return called("StopPodSandbox", p.ID), p.populate(0)
}

func (p fakePod) remove(context.Context) error {
	p.server.Forget(p.ID)
	return errors.Join(os.RemoveAll(p.dir()), os.RemoveAll(filepath.Dir(p.cgroup())))
}

// realRuntime is a real containerd.
type realRuntime struct{ *lab.Lab }

type realPod struct {
	realRuntime
	*lab.RunningPod
}

func (r realRuntime) run(ctx context.Context, workload string, n int) (runningPod, error) {
	name, labels := podName(workload, n)
	p, err := r.RunPod(ctx, lab.PodSpec{Namespace: "shop", Name: name, Labels: labels, Containers: []lab.ContainerSpec{{
		Name: "main", EmptyDirs: map[string]string{"data": "/data"}, Args: []string{"fill", "-path", "/data/fill", "-mib", fmt.Sprint(podBytes / mib)},
	}}})
	return realPod{r, p}, err
}

func (p realPod) file() string {
	return filepath.Join(p.KubeletRoot(), "pods", p.UID, emptyDir, "fill")
}

func (p realPod) stopped(ctx context.Context) (bool, error) {
	ready, err := p.Ready(ctx, p.SandboxID)
	return !ready, err
}

func (p realPod) remove(ctx context.Context) error { return p.RemovePod(ctx, p.RunningPod) }

// endKubelet keeps a number of pods running on a node. The next pod is always of another workload.
type endKubelet struct {
	testing.TB
	podRuntime

	mu    sync.Mutex
	slots [podsPerNode]struct {
		pod  runningPod // nil: stopped
		next time.Time
	}
	begun int // number of pods so far
}

// keep runs pods until ctx ends.
func (k *endKubelet) keep(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.Errorf("run pods: %v", err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *endKubelet) sync(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.slots {
		s := &k.slots[i]
		if s.pod != nil {
			stopped, err := s.pod.stopped(ctx)
			if err == nil && stopped {
				err = s.pod.remove(ctx)
				s.pod, s.next = nil, time.Now().Add(recreateAfter)
			}
			if err != nil {
				return err
			}
		}
		if s.pod == nil && !time.Now().Before(s.next) {
			p, err := k.run(ctx, fmt.Sprint("app", k.begun%workloads), k.begun)
			if err != nil {
				return err
			}
			s.pod = p
			k.begun++
		}
	}
	return nil
}

// complete reports whether all pods run, with their files.
func (k *endKubelet) complete() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.slots {
		p := k.slots[i].pod
		if p == nil {
			return false
		}
		if st, err := os.Stat(p.file()); err != nil || st.Size() < podBytes {
			return false
		}
	}
	return true
}

// shrink undoes grow, where no guard has stopped the pod.
func (k *endKubelet) shrink() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for i := range k.slots {
		if p := k.slots[i].pod; p != nil {
			if st, err := os.Stat(p.file()); err == nil && st.Size() > podBytes {
				errs = append(errs, os.Truncate(p.file(), podBytes))
			}
		}
	}
	return errors.Join(errs...)
}

// grow lets a pod take more of the node's filesystem, at once, and returns its file.
func (k *endKubelet) grow(bytes int64) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.slots {
		p := k.slots[i].pod
		if p == nil {
			continue
		}
		f, err := os.OpenFile(p.file(), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return "", err
		}
		_, err = f.Write(make([]byte, bytes))
		return p.file(), errors.Join(err, f.Close())
	}
	return "", errors.New("no pod runs")
}
