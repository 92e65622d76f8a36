package prune_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/lab"
)

// criguard is the binary under test, built once.
var criguard string

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, func(ctx context.Context, dir string) error {
		criguard = filepath.Join(dir, "criguard")
		return lab.BuildCriguard(ctx, criguard)
	}))
}

// node is a lab with a small image filesystem, and criguard's files on it.
type node struct {
	*testing.T
	lab    *lab.Lab
	client *cri.Client
	dir    string
	airgap string
	config string
}

const mib = 1 << 20

func newNode(t *testing.T, runtime string) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a private containerd with mounts and cgroups")
	}
	l, err := lab.Start(context.Background(), lab.Options{Containerd: runtime, ImageFSBytes: 1 << 30, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("runs on %s", l.Version())
	n := &node{T: t, lab: l, dir: t.TempDir(), airgap: t.TempDir()}
	n.config = filepath.Join(n.dir, "config.toml")
	if n.client, err = cri.Dial(l.Endpoint(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.client.Close() })
	n.configure("15%", "5%")
	return n
}

func (n *node) configure(threshold, reclaim string) {
	n.Helper()
	text := n.lab.Config() + fmt.Sprintf(`
[eviction.hard]
"memory.available" = "0%%"
"nodefs.available" = "0%%"
"nodefs.inodesFree" = "0%%"
"imagefs.available" = %q
[eviction.minimum_reclaim]
"imagefs.available" = %q
[images]
min_age = "0s"
unused_grace = "0s"
hold_after_runtime_restart = "0s"
airgap_dirs = [%q]
[history]
dir = %q
`, threshold, reclaim, n.airgap, n.dir)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// ask runs a command of criguard's for programs.
func ask[T any](n *node, args ...string) T {
	n.Helper()
	var v T
	args = append(args, "-o", "json", "--config", n.config, "--run-dir", n.dir)
	out, err := exec.Command(criguard, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() != 1 {
		n.Fatalf("criguard %s: %v: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err := json.Unmarshal(out, &v); err != nil {
		n.Fatalf("criguard %s: %v in %s", strings.Join(args, " "), err, out)
	}
	return v
}

// until polls for something to become true.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	n.untilWithin(time.Minute, what, done)
}

func (n *node) untilWithin(limit time.Duration, what string, done func() bool) {
	n.Helper()
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			n.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// present lists the images by their first names.
func (n *node) present() map[string]cri.Image {
	n.Helper()
	images, err := n.client.Images(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	by := map[string]cri.Image{}
	for _, img := range images {
		for _, tag := range img.Tags {
			by[tag] = img
		}
	}
	return by
}
