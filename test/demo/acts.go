package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

const (
	mib          = 1 << 20
	imageFSBytes = 1 << 30
	bigImage     = 45 * mib
	// headroom is how much the leak can take before the threshold is met. The leak exceeds it by
	// more than other programs could free in the meantime.
	headroom = 1 << 30
	hogMiB   = "4096"
	hogRate  = "800"
)

// demo is the setup: a lab, its pods, and the guard.
type demo struct {
	*story
	lab    *lab.Lab
	client *cri.Client
	binary string
	dir    string
	pods   []*lab.RunningPod
	guard  *exec.Cmd
	logged chan struct{}
}

const leaker = "leaky"

// stage creates six pods, dead containers and unused images.
func (d *demo) stage(ctx context.Context) error {
	var err error
	if d.dir, err = os.MkdirTemp("", "criguard-demo-"); err != nil {
		return err
	}
	if d.client, err = cri.Dial(d.lab.Endpoint(), 5*time.Second); err != nil {
		return err
	}
	images := []lab.ImageSpec{
		{Name: "registry.local/web:1", ExtraBytes: mib, RepoDigest: true},
		{Name: "registry.local/old-a:1", ExtraBytes: bigImage, RepoDigest: true},
		{Name: "registry.local/old-b:1", ExtraBytes: bigImage, RepoDigest: true},
		{Name: airgapped, ExtraBytes: bigImage},
	}
	for i := range images {
		images[i].ExtraBytes += int64(i) // makes each image different
	}
	if _, err := d.lab.ImportImages(ctx, images...); err != nil {
		return err
	}
	web := []lab.ContainerSpec{{Name: "web", Image: "registry.local/web:1"}}
	hog := []lab.ContainerSpec{{
		Name: "main", Args: []string{"hog", "-mib", hogMiB, "-rate", hogRate, "-when", "/ctl/leak"},
		EmptyDirs: map[string]string{"ctl": "/ctl"},
	}}
	for _, p := range []lab.PodSpec{
		{Name: "database", QoS: "Guaranteed", MemoryRequest: 64 * mib, MemoryLimit: 64 * mib, Containers: web},
		{Name: "shop", MemoryRequest: 64 * mib, Containers: web},
		{Name: "search", MemoryRequest: 32 * mib, Containers: web},
		{Name: "batch", Containers: web},
		{Name: leaker, Containers: hog},
		{Namespace: "vault", Name: "keys", Containers: web},
	} {
		pod, err := d.lab.RunPod(ctx, p)
		if err != nil {
			return err
		}
		d.pods = append(d.pods, pod)
		d.detail("pod %s/%s, %s", pod.Namespace, pod.Name, pod.QoS)
	}
	for attempt := range uint32(3) {
		c, err := d.lab.RunContainer(ctx, d.pods[0], lab.ContainerSpec{
			Name: "migrate", Attempt: attempt, Image: "registry.local/web:1", Args: []string{"exit"},
		})
		if err != nil {
			return err
		}
		if _, err := d.lab.WaitExit(ctx, c.ID); err != nil {
			return err
		}
	}
	d.say("six pods run; three dead containers and three unused images lie about")
	return d.configure(settings{})
}

// airgapped is an imported image without a digest in any registry, so it could not be pulled again.
const airgapped = "registry.local/airgapped:1"

// before runs criguard's commands without its service.
func (d *demo) before(ctx context.Context) error {
	d.title("Before: asking without the service")
	st, err := d.status(ctx)
	if err != nil {
		return err
	}
	if st.Live || st.Pods != len(d.pods) {
		return fmt.Errorf("status without the service: live %v, %d pods, want %d", st.Live, st.Pods, len(d.pods))
	}
	r, err := ask[api.Ranking](ctx, d, "rank")
	if err != nil {
		return err
	}
	if r.APIVersion != api.APIVersion || r.Live || len(r.Pods) != len(d.pods) {
		return fmt.Errorf("rank without the service: %+v", r)
	}
	out, err := d.criguard(ctx, "rank")
	if err != nil {
		return err
	}
	d.quote(out)
	d.say("starting criguard run")
	return d.startGuard(ctx)
}

// actOne fills the image filesystem.
func (d *demo) actOne(ctx context.Context) error {
	d.title("Act one: the image filesystem fills")
	d.say("importing more images until imagefs.available falls below 25 %%")
	for i := range 7 {
		spec := lab.ImageSpec{Name: fmt.Sprintf("registry.local/new-%d:1", i), ExtraBytes: bigImage + int64(10+i), RepoDigest: true}
		if _, err := d.lab.ImportImage(ctx, spec); err != nil {
			return err
		}
	}
	err := d.until(ctx, "the image filesystem to be relieved", func() (bool, error) {
		st, err := d.status(ctx)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(st.Signals, func(s api.SignalStatus) bool { return s.Signal == policy.ImageFSAvailable })
		if i < 0 || len(st.Signals[i].Thresholds) == 0 {
			return false, errors.New("imagefs.available is not watched")
		}
		h, err := d.history(ctx)
		return err == nil && !st.Signals[i].Thresholds[0].Met && reclaimed(h) > 0, err
	})
	if err != nil {
		return err
	}
	out, err := d.criguard(ctx, "history")
	if err != nil {
		return err
	}
	d.quote(out)
	return d.judgeOne(ctx)
}

func reclaimed(h []api.Pass) (removed int) {
	for i := range h {
		for j := range h[i].Reclaimed {
			removed += h[i].Reclaimed[j].Removed()
		}
	}
	return removed
}

// judgeOne checks that dead containers and just enough images were removed, and nothing else.
func (d *demo) judgeOne(ctx context.Context) error {
	images, err := d.client.Images(ctx)
	if err != nil {
		return err
	}
	prunable, kept := 0, false
	for _, img := range images {
		switch {
		case slices.Contains(img.Tags, airgapped):
			kept = true
		case slices.ContainsFunc(img.Tags, func(t string) bool {
			return t != "registry.local/web:1" && len(img.Digests) > 0
		}) && img.Size > 10*mib:
			prunable++
		}
	}
	if !kept {
		return errors.New("the image that cannot be pulled again was removed")
	}
	if prunable == 0 {
		return errors.New("all unused images were removed, not just enough")
	}
	containers, err := d.client.Containers(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if c.State == cri.Exited {
			return fmt.Errorf("a dead container was left: %s", c.Name)
		}
	}
	h, err := d.history(ctx)
	if err != nil {
		return err
	}
	for i := range h {
		if h[i].Stop != nil {
			return fmt.Errorf("a pod was stopped for a full disk that pruning relieved: %s", h[i].Stop.Pod)
		}
	}
	d.say("relieved: dead containers gone, just enough images gone, %d unused ones and the one that cannot be pulled again kept; no pod was stopped", prunable)
	return d.alive(ctx, "")
}

// actTwo lets one pod leak.
func (d *demo) actTwo(ctx context.Context) error {
	d.title("Act two: one BestEffort pod leaks")
	st, err := d.status(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(st.Signals, func(s api.SignalStatus) bool { return s.Signal == policy.MemoryAvailable })
	if i < 0 {
		return errors.New("memory.available is not observed")
	}
	limit := st.Signals[i].Available - headroom
	if err := d.configure(settings{memory: limit}); err != nil {
		return err
	}
	if err := d.guard.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	err = d.until(ctx, "the reload", func() (bool, error) {
		st, err := d.status(ctx)
		return err == nil && slices.ContainsFunc(st.Signals[i].Thresholds, func(t api.ThresholdStatus) bool { return t.Amount == limit }), err
	})
	if err != nil {
		return err
	}
	d.say("memory.available is %s; the hard threshold is %s; %s/%s may go now, at %s MiB/s",
		api.FormatBytes(st.Signals[i].Available), api.FormatBytes(limit), "default", leaker, hogRate)
	if err := d.leak(); err != nil {
		return err
	}
	var stop api.StopView
	err = d.until(ctx, "the stop", func() (bool, error) {
		h, err := d.history(ctx)
		for i := range h {
			for _, s := range h[i].Settled {
				stop = s
			}
		}
		return stop.Pod != "", err
	})
	if err != nil {
		return err
	}
	out, err := d.criguard(ctx, "history")
	if err != nil {
		return err
	}
	d.quote(out)
	if stop.Pod != "default/"+leaker || !stop.Result.Emptied {
		return fmt.Errorf("stopped %s (emptied: %v), want default/%s", stop.Pod, stop.Result.Emptied, leaker)
	}
	d.say("stopped %s %.1f ms after the decision, by %s; its memory was back after %.0f ms", stop.Pod,
		float64(stop.Result.EmptiedIn)/1e6, stop.Result.Method, float64(stop.Result.SettledIn)/1e6)
	d.say("why: %s", stop.Reason)
	// The runtime updates its state within milliseconds.
	return d.until(ctx, "the runtime to notice", func() (bool, error) {
		return d.alive(ctx, leaker) == nil, nil
	})
}

// leak releases the hog.
func (d *demo) leak() error {
	for _, p := range d.pods {
		if p.Name == leaker {
			ctl := filepath.Join(d.lab.KubeletRoot(), "pods", p.UID, "volumes/kubernetes.io~empty-dir/ctl/leak")
			return os.WriteFile(ctl, nil, 0o600)
		}
	}
	return errors.New("there is no pod that leaks")
}

// alive checks that every pod is running, except the named one.
func (d *demo) alive(ctx context.Context, but string) error {
	containers, err := d.client.Containers(ctx)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for _, c := range containers {
		running[c.SandboxID] = running[c.SandboxID] || c.State == cri.Running
	}
	for _, p := range d.pods {
		if want := p.Name != but; running[p.SandboxID] != want {
			return fmt.Errorf("pod %s/%s: running is %v, want %v", p.Namespace, p.Name, running[p.SandboxID], want)
		}
	}
	return nil
}

// epilogue shows the ranking from the service, and the guard's resource use.
func (d *demo) epilogue(ctx context.Context) error {
	d.title("After")
	r, err := ask[api.Ranking](ctx, d, "rank")
	if err != nil {
		return err
	}
	if !r.Live || r.APIVersion != api.APIVersion {
		return errors.New("rank was not answered by the service")
	}
	for _, args := range [][]string{{"rank"}, {"status"}} {
		out, err := d.criguard(ctx, args...)
		if err != nil {
			return err
		}
		d.quote(out)
	}
	st, err := d.status(ctx)
	if err != nil {
		return err
	}
	size, err := os.Stat(d.binary)
	if err != nil {
		return err
	}
	if err := d.stopGuard(); err != nil {
		return err
	}
	d.say("criguard ended cleanly; the other five pods live")
	fmt.Fprintf(d.w, "\nresident memory of the service: %.1f MiB (target 20)\nsize of the binary: %.1f MiB (target 25)\n",
		float64(st.Resident)/mib, float64(size.Size())/mib)
	return nil
}
