package reclaim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/leak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		writeLedgerForever(path)
	}
	if arg := os.Getenv(writersEnv); arg != "" {
		saveAlongOthers(arg)
	}
	os.Exit(leak.Main(m))
}

// epoch is a plausible creation time.
var epoch = time.Date(2024, time.May, 1, 12, 0, 0, 0, time.UTC)

// fakeClock is both clocks; boot time starts at an hour.
type fakeClock struct {
	mu   sync.Mutex
	boot time.Duration
	wall time.Time
}

func newClock() *fakeClock { return &fakeClock{boot: time.Hour, wall: epoch.Add(24 * time.Hour)} }

func (c *fakeClock) now() Moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Moment{c.boot, c.wall}
}

func (c *fakeClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot, c.wall = c.boot+d, c.wall.Add(d)
}

// fakeRuntime is a runtime in memory with a disk: a removal frees the object's bytes after lag.
type fakeRuntime struct {
	mu         sync.Mutex
	containers []cri.Container
	details    map[string]cri.ContainerDetail // fields that differ from the list
	sandboxes  []cri.Sandbox
	pause      map[string]string // image, by sandbox
	images     []cri.Image
	status     cri.Status
	version    cri.Version

	sizes map[string]int64
	free  int64
	lag   time.Duration
	late  []lateBytes

	// faults answer instead of the runtime, by "Call" or "Call id"; if done is false, the call
	// proceeds.
	faults map[string]func(ctx context.Context) (done bool, err error)
	calls  []string
}

type lateBytes struct {
	at    time.Time
	bytes int64
}

func newFake() *fakeRuntime {
	return &fakeRuntime{
		details: map[string]cri.ContainerDetail{}, pause: map[string]string{},
		sizes: map[string]int64{}, faults: map[string]func(context.Context) (bool, error){},
		status: cri.Status{SandboxImage: "registry.local/sandbox:1"},
	}
}

func (f *fakeRuntime) call(ctx context.Context, name, id string) (bool, error) {
	f.mu.Lock()
	f.calls = append(f.calls, strings.TrimSpace(name+" "+id))
	fault := f.faults[name]
	if one, ok := f.faults[name+" "+id]; ok {
		fault = one
	}
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if fault == nil {
		return false, nil
	}
	return fault(ctx)
}

// called returns the calls that begin with a prefix.
func (f *fakeRuntime) called(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if strings.HasPrefix(c, prefix) {
			out = append(out, c)
		}
	}
	return out
}

func (f *fakeRuntime) Containers(ctx context.Context) ([]cri.Container, error) {
	if done, err := f.call(ctx, "Containers", ""); done {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.containers), nil
}

func (f *fakeRuntime) Sandboxes(ctx context.Context) ([]cri.Sandbox, error) {
	if done, err := f.call(ctx, "Sandboxes", ""); done {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sandboxes), nil
}

func (f *fakeRuntime) Images(ctx context.Context) ([]cri.Image, error) {
	if done, err := f.call(ctx, "Images", ""); done {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.images), nil
}

func (f *fakeRuntime) Status(ctx context.Context) (cri.Status, error) {
	_, err := f.call(ctx, "Status", "")
	return f.status, err
}

func (f *fakeRuntime) Version(ctx context.Context) (cri.Version, error) {
	_, err := f.call(ctx, "Version", "")
	return f.version, err
}

func (f *fakeRuntime) ContainerStatus(ctx context.Context, id string) (cri.ContainerDetail, error) {
	if done, err := f.call(ctx, "ContainerStatus", id); done {
		return cri.ContainerDetail{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c.ID == id {
			d := f.details[id]
			d.Container = c
			return d, nil
		}
	}
	return cri.ContainerDetail{}, fmt.Errorf("inspect container: %w", cri.ErrGone)
}

func (f *fakeRuntime) Sandbox(ctx context.Context, id string) (cri.Sandbox, error) {
	if done, err := f.call(ctx, "Sandbox", id); done {
		return cri.Sandbox{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.sandboxes {
		if b.ID == id {
			return b, nil
		}
	}
	return cri.Sandbox{}, fmt.Errorf("look up sandbox: %w", cri.ErrGone)
}

func (f *fakeRuntime) SandboxDetail(ctx context.Context, id string) (cri.SandboxDetail, error) {
	if done, err := f.call(ctx, "SandboxDetail", id); done {
		return cri.SandboxDetail{}, err
	}
	b, err := f.Sandbox(ctx, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	return cri.SandboxDetail{Sandbox: b, Image: f.pause[id]}, err
}

func (f *fakeRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := f.call(ctx, "StopContainer", fmt.Sprintf("%s %s", id, grace))
	return err
}

// Deadlines of a client.
const (
	stopSandboxIn     = 5 * time.Second
	stopDeadSandboxIn = 2 * time.Minute
)

func (f *fakeRuntime) StopSandbox(ctx context.Context, id string) error {
	return f.stopSandbox(ctx, id, stopSandboxIn)
}

func (f *fakeRuntime) StopDeadSandbox(ctx context.Context, id string) error {
	return f.stopSandbox(ctx, id, stopDeadSandboxIn)
}

func (f *fakeRuntime) stopSandbox(ctx context.Context, id string, in time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, in)
	defer cancel()
	_, err := f.call(ctx, "StopSandbox", id)
	return err
}

func (f *fakeRuntime) RemoveContainer(ctx context.Context, id string) error {
	if done, err := f.call(ctx, "RemoveContainer", id); done {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers = slices.DeleteFunc(f.containers, func(c cri.Container) bool { return c.ID == id })
	f.give(id)
	return nil
}

func (f *fakeRuntime) RemoveSandbox(ctx context.Context, id string) error {
	if done, err := f.call(ctx, "RemoveSandbox", id); done {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes = slices.DeleteFunc(f.sandboxes, func(b cri.Sandbox) bool { return b.ID == id })
	f.give(id)
	return nil
}

func (f *fakeRuntime) RemoveImage(ctx context.Context, id string) error {
	if done, err := f.call(ctx, "RemoveImage", id); done {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropImage(id)
	return nil
}

func (f *fakeRuntime) dropImage(id string) {
	f.images = slices.DeleteFunc(f.images, func(i cri.Image) bool {
		if i.ID == id {
			f.sizes[id] = i.Size
		}
		return i.ID == id
	})
	f.give(id)
}

func (f *fakeRuntime) give(id string) {
	if n := f.sizes[id]; f.lag > 0 {
		f.late = append(f.late, lateBytes{time.Now().Add(f.lag), n})
	} else {
		f.free += n
	}
	delete(f.sizes, id)
}

// want returns a target of this many free bytes.
func (f *fakeRuntime) want(bytes int64) Target {
	return func(context.Context) (Room, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.late = slices.DeleteFunc(f.late, func(l lateBytes) bool {
			if time.Now().Before(l.at) {
				return false
			}
			f.free += l.bytes
			return true
		})
		return Room{Bytes: f.free, LackBytes: bytes - f.free}, nil
	}
}

// image returns an image that can be pulled again.
func image(n int, size int64) cri.Image {
	id := fmt.Sprintf("sha256:%064x", n)
	repo := fmt.Sprintf("registry.example/app%d", n)
	return cri.Image{ID: id, Tags: []string{repo + ":1"}, Digests: []string{fmt.Sprintf("%s@sha256:%064x", repo, n+1<<20)}, Size: size}
}

// container returns an exited container of a pod.
func container(id, pod, name string, created time.Time) cri.Container {
	return cri.Container{
		ID: id, SandboxID: "sb-" + pod, Name: name, State: cri.Exited, CreatedAt: created,
		Labels: map[string]string{labelPodUID: pod, labelPodName: pod, labelPodNamespace: "default"},
	}
}

func sandbox(id, pod string, ready bool, created time.Time) cri.Sandbox {
	return cri.Sandbox{ID: id, Name: pod, Namespace: "default", UID: pod, Ready: ready, CreatedAt: created}
}

func ids(items []Item) []string {
	out := []string{}
	for _, it := range items {
		out = append(out, it.ID)
	}
	return out
}

func sortedIDs(items []Item) []string {
	out := ids(items)
	slices.Sort(out)
	return out
}

func why(items []Item, id string) string {
	for _, it := range items {
		if it.ID == id {
			return it.Why
		}
	}
	return "not listed"
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func hang(ctx context.Context) (bool, error) {
	<-ctx.Done()
	if errors.Is(ctx.Err(), context.Canceled) {
		return true, ctx.Err()
	}
	return true, fmt.Errorf("call: %w", cri.ErrTimeout)
}

func refuse(context.Context) (bool, error) { return true, fmt.Errorf("call: %w: no", cri.ErrRefused) }

func gone(context.Context) (bool, error) { return true, fmt.Errorf("call: %w", cri.ErrGone) }

func unavailable(context.Context) (bool, error) {
	return true, fmt.Errorf("call: %w", cri.ErrUnavailable)
}

var errBoom = errors.New("boom")

var _ Runtime = (*cri.Client)(nil)
