package critest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// hangs is when something counts as hung, even on a busy machine.
const hangs = time.Minute

// Contract checks that a runtime, used through package cri, behaves as the rest of criguard expects. It
// touches only the pods and images that it created.
func Contract(t *testing.T, target Target) {
	client, err := cri.Dial(target.Endpoint(), hangs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	version, err := client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []struct {
		name string
		run  func(*contract)
	}{
		{"runtime", (*contract).runtime},
		{"sandbox", (*contract).sandbox},
		{"container", (*contract).container},
		{"missing", (*contract).missing},
		{"stop container", (*contract).stopContainer},
		{"stop escalates", (*contract).stopEscalates},
		{"stop cut short", (*contract).stopCutShort},
		{"stop sandbox", (*contract).stopSandbox},
		{"remove", (*contract).remove},
		{"images", (*contract).images},
		{"filesystems", (*contract).filesystems},
		{"killed from outside", (*contract).killedOutside},
		{"frozen shim", (*contract).frozenShim},
		{"events", (*contract).events},
	} {
		t.Run(check.name, func(t *testing.T) {
			check.run(&contract{T: t, target: target, client: client, version: version})
		})
	}
}

// contract is a running check.
type contract struct {
	*testing.T
	target  Target
	client  *cri.Client
	version cri.Version
}

// runPod runs a pod with a unique identity.
func (c *contract) runPod(containers ...ContainerSpec) Pod {
	c.Helper()
	return c.target.RunPod(c.T, PodSpec{
		Name: "contract-" + c.unique(), Namespace: "critest",
		UID:         fmt.Sprintf("00000000-0000-4000-8000-%012s", c.unique()),
		Labels:      map[string]string{"critest": "contract"},
		Annotations: map[string]string{"critest.criguard.io/note": "as given"},
		Containers:  containers,
	})
}

// unique returns 12 hexadecimal digits that no other name on the runtime contains.
func (c *contract) unique() string {
	c.Helper()
	b := make([]byte, 6)
	if _, err := rand.Read(b); err != nil {
		c.Fatal(err)
	}
	return hex.EncodeToString(b)
}

func (c *contract) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// eventually waits until a condition holds.
func (c *contract) eventually(what string, holds func() bool) {
	c.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(hangs); !holds(); <-tick.C {
		if time.Now().After(end) {
			c.Fatalf("still not: %s", what)
		}
	}
}

func (c *contract) state(id string) cri.State {
	c.Helper()
	s, err := c.client.ContainerStatus(c.Context(), id)
	c.check(err)
	return s.State
}

func (c *contract) wantState(id string, want cri.State) {
	c.Helper()
	if got := c.state(id); got != want {
		c.Errorf("container is %s, want %s", got, want)
	}
}

func (c *contract) ready(id string) bool {
	c.Helper()
	s, err := c.client.Sandbox(c.Context(), id)
	c.check(err)
	return s.Ready
}

func (c *contract) runtime() {
	if c.version.RuntimeName == "" || c.version.APIVersion != "v1" {
		c.Errorf("version = %+v", c.version)
	}
	if _, _, ok := c.version.Release(); !ok {
		c.Errorf("release of %q cannot be read", c.version.RuntimeVersion)
	}
	_, err := c.client.Status(c.Context())
	c.check(err)
}

func (c *contract) sandbox() {
	pod := c.runPod(ContainerSpec{Name: "app"})
	list, err := c.client.Sandboxes(c.Context())
	c.check(err)
	listed := ids(list, sandboxID)[pod.ID]
	looked, err := c.client.Sandbox(c.Context(), pod.ID)
	c.check(err)
	detail, err := c.client.SandboxDetail(c.Context(), pod.ID)
	c.check(err)
	for from, s := range map[string]cri.Sandbox{"listed": listed, "looked up": looked, "in detail": detail.Sandbox} {
		if s.ID != pod.ID || s.Name != pod.Name || s.Namespace != pod.Namespace || s.UID != pod.UID || !s.Ready {
			c.Errorf("%s: %+v, want %+v", from, s, pod)
		}
		if s.Labels["critest"] != "contract" || s.Annotations["critest.criguard.io/note"] != "as given" {
			c.Errorf("%s: labels %v, annotations %v", from, s.Labels, s.Annotations)
		}
		if age := time.Since(s.CreatedAt); age < 0 || age > 10*time.Minute {
			c.Errorf("%s: created %s ago", from, age)
		}
	}
	if pod.CgroupParent != "" && detail.CgroupParent != pod.CgroupParent {
		c.Errorf("cgroup parent = %q, want %q", detail.CgroupParent, pod.CgroupParent)
	}
	if detail.Image == "" {
		c.Error("the sandbox image is not told")
	}
}

func (c *contract) container() {
	const limit = 64 << 20
	pod := c.runPod(
		ContainerSpec{Name: "running", Grace: 17 * time.Second, MemoryLimit: limit},
		ContainerSpec{Name: "exited", State: cri.Exited},
		ContainerSpec{Name: "created", State: cri.Created},
	)
	list, err := c.client.Containers(c.Context())
	c.check(err)
	listed := ids(list, containerID)
	for i, want := range []cri.State{cri.Running, cri.Exited, cri.Created} {
		got := listed[pod.Containers[i].ID]
		if got.State != want || got.Name != pod.Containers[i].Name || got.SandboxID != pod.ID || got.ImageRef == "" || got.CreatedAt.IsZero() {
			c.Errorf("listed: %+v, want %s", got, want)
		}
		if grace, ok := got.GracePeriod(); i == 0 && (!ok || grace != 17*time.Second) {
			c.Errorf("grace period = %s, %t", grace, ok)
		}
		c.wantState(pod.Containers[i].ID, want)
	}
	d, err := c.client.ContainerDetail(c.Context(), pod.Containers[0].ID)
	c.check(err)
	if d.ID != pod.Containers[0].ID || d.State != cri.Running || d.SandboxID != pod.ID || d.PID == 0 || d.StartedAt.IsZero() || d.LogPath == "" {
		c.Errorf("detail = %+v", d)
	}
	if !strings.Contains(d.CgroupsPath, d.ID) || pod.CgroupParent != "" && !strings.Contains(d.CgroupsPath, path.Base(pod.CgroupParent)) {
		c.Errorf("cgroups path = %q, of a pod in %q", d.CgroupsPath, pod.CgroupParent)
	}
	if d.Resources.MemoryLimit != (cri.Number{Value: limit, Known: true}) || !d.Resources.OOMScoreAdj.Known {
		c.Errorf("resources = %+v", d.Resources)
	}
	d, err = c.client.ContainerDetail(c.Context(), pod.Containers[1].ID)
	c.check(err)
	if d.State != cri.Exited {
		c.Errorf("detail of the exited one = %+v", d)
	}
}

// missing: a lookup of a missing object returns ErrGone; a stop or removal succeeds.
func (c *contract) missing() {
	id := strings.Repeat("deadbeef", 8)
	_, err := c.client.Sandbox(c.Context(), id)
	c.wantGone("Sandbox", err)
	_, err = c.client.SandboxDetail(c.Context(), id)
	c.wantGone("SandboxDetail", err)
	_, err = c.client.ContainerStatus(c.Context(), id)
	c.wantGone("ContainerStatus", err)
	_, err = c.client.ContainerDetail(c.Context(), id)
	c.wantGone("ContainerDetail", err)
	for name, err := range map[string]error{
		"StopContainer":   c.client.StopContainer(c.Context(), id, 0),
		"StopSandbox":     c.client.StopSandbox(c.Context(), id),
		"RemoveContainer": c.client.RemoveContainer(c.Context(), id),
		"RemoveSandbox":   c.client.RemoveSandbox(c.Context(), id),
		"RemoveImage":     c.client.RemoveImage(c.Context(), "sha256:"+id),
	} {
		if err != nil {
			c.Errorf("%s of nothing: %v", name, err)
		}
	}
}

func (c *contract) wantGone(name string, err error) {
	c.Helper()
	if !errors.Is(err, cri.ErrGone) {
		c.Errorf("%s of nothing: %v, want ErrGone", name, err)
	}
}

// timed measures the duration of a call.
func timed(do func() error) (time.Duration, error) {
	start := time.Now()
	err := do()
	return time.Since(start), err
}

// async runs a call in the background.
func async(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

// deadline returns a context that ends soon.
func (c *contract) deadline(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(c.Context(), d)
	c.Cleanup(cancel)
	return ctx
}
