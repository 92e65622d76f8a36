package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/test/lab"
)

const mib = 1 << 20

// bench is the test setup: a lab with standby pods, created on first use.
type bench struct {
	settings
	report *report
	say    func(format string, args ...any)
	lab    *lab.Lab
	pods   []*lab.RunningPod
	node   *cgroup.Node
	hogs   int // created so far
}

// atOnce is the number of pods started concurrently.
const atOnce = 4

// stage creates the lab and its pods, once.
func (b *bench) stage(ctx context.Context) error {
	if b.lab != nil {
		return nil
	}
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		return err
	}
	if b.node, err = cgroup.OpenNode(layout, ""); err != nil {
		return err
	}
	if b.lab, err = lab.Start(ctx, lab.Options{Containerd: b.containerd, Say: b.say}); err != nil {
		return err
	}
	b.report.Containerd, b.report.Cgroup = b.lab.Version(), layout.Version.String()
	b.say("starting %d pods", b.settings.pods)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		errs   []error
		places = make(chan struct{}, atOnce)
	)
	for i := range b.settings.pods {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			pod, err := b.lab.RunPod(ctx, standby(i))
			mu.Lock()
			defer mu.Unlock()
			if b.pods = append(b.pods, pod); err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// standby returns a pod that does nothing. The pods have all QoS classes, as on a working node.
func standby(i int) lab.PodSpec {
	p := lab.PodSpec{
		Namespace: "bench", Name: fmt.Sprintf("standby-%d", i), Annotations: withoutKubelet(),
		Containers: []lab.ContainerSpec{{Name: "main"}},
	}
	switch i % 3 {
	case 1:
		p.MemoryRequest = 16 * mib
	case 2:
		p.MemoryRequest, p.MemoryLimit = 32*mib, 32*mib
	}
	return p
}

// withoutKubelet removes the annotation that marks a pod as the kubelet's: next to a kubelet,
// criguard does not touch the pods' cgroups.
func withoutKubelet() map[string]string { return map[string]string{"kubernetes.io/config.source": ""} }

// mend restarts whatever a guard has wrongly killed.
func (b *bench) mend(ctx context.Context) error {
	if b.lab.ContainerdPID() == 0 {
		b.say("  containerd was ended, too")
		if err := b.lab.RestartContainerd(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i, pod := range b.pods {
		pids, err := os.ReadFile(filepath.Join(b.lab.MemoryCgroupDir(pod.Containers[0].Cgroup), "cgroup.procs"))
		if err == nil && len(pids) > 0 {
			continue
		}
		if err := b.lab.RemovePod(ctx, pod); err != nil {
			return err
		}
		if b.pods[i], err = b.lab.RunPod(ctx, lab.PodSpec{
			Namespace: pod.Namespace, Name: pod.Name, MemoryRequest: pod.MemoryRequest, MemoryLimit: pod.MemoryLimit,
			Annotations: withoutKubelet(), Containers: pod.PodSpec.Containers,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) close() error {
	if b.lab == nil {
		return nil
	}
	b.node.Close()
	errs := []error{b.lab.Close()}
	left, err := b.lab.Leftovers()
	errs = append(errs, err)
	for _, thing := range left {
		errs = append(errs, fmt.Errorf("left behind: %s", thing))
	}
	return errors.Join(errs...)
}

// processes lists all processes below the cgroup of all pods, except those of one pod.
func (b *bench) processes(but *lab.RunningPod) ([]int, error) {
	var pids []int
	skip := b.lab.MemoryCgroupDir(but.CgroupParent)
	err := filepath.WalkDir(b.lab.MemoryCgroupDir(b.lab.PodsCgroup()), func(path string, entry os.DirEntry, err error) error {
		if path == skip {
			return fs.SkipDir
		}
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // a cgroup that went away holds nobody
		}
		text, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// bystanders are the processes that no guard may kill.
type bystanders []int // pidfds

func (b *bench) watchBystanders(but *lab.RunningPod) (bystanders, error) {
	pids, err := b.processes(but)
	if err != nil {
		return nil, err
	}
	var fds bystanders
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			fds.close()
			return nil, fmt.Errorf("open process %d: %w", pid, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// ended counts the bystanders that have ended.
func (s bystanders) ended() int {
	polls := make([]unix.PollFd, len(s))
	for i, fd := range s {
		polls[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for {
		n, err := unix.Poll(polls, 0)
		if !errors.Is(err, unix.EINTR) {
			return n
		}
	}
}

func (s bystanders) close() {
	for _, fd := range s {
		_ = unix.Close(fd)
	}
}

// until polls until a condition is true.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for %s: %w", what, ctx.Err()), err)
		case <-tick.C:
		}
	}
}
