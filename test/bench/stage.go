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

// bench is the stage: a lab with pods that stand by, made when first needed.
type bench struct {
	settings
	report *report
	say    func(format string, args ...any)
	lab    *lab.Lab
	pods   []*lab.RunningPod
	node   *cgroup.Node
	hogs   int // made so far
}

// atOnce is how many pods are started at a time.
const atOnce = 4

// stage makes the lab and its pods, once.
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

// standby is a pod that does nothing: of every class, as on a node that does
// something.
func standby(i int) lab.PodSpec {
	p := lab.PodSpec{Namespace: "bench", Name: fmt.Sprintf("standby-%d", i), Containers: []lab.ContainerSpec{{Name: "main"}}}
	switch i % 3 {
	case 1:
		p.MemoryRequest = 16 * mib
	case 2:
		p.MemoryRequest, p.MemoryLimit = 32*mib, 32*mib
	}
	return p
}

// mend puts back what a guard has ended that it should not have.
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
			Containers: []lab.ContainerSpec{{Name: "main"}},
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

// processes lists every process below the cgroup of all pods, but for those of one pod.
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

// bystanders are the processes that no guard may end.
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

// ended counts those that are gone.
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

// until waits for something to become true.
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
