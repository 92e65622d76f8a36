package prune_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// idle is long enough for every housekeeping task except that for images, and for several listings.
const idle = 65 * time.Second

// An idle guard writes nothing to any disk, however many images there are: its state is in memory
// and does not change.
func TestIdleWritesNothing(t *testing.T) {
	t.Parallel() // this test waits for a minute
	n := newNode(t, lab.Containerd2)
	var specs []lab.ImageSpec
	for i := range 100 {
		specs = append(specs, lab.ImageSpec{Name: fmt.Sprintf("registry.local/idle-%03d:1", i), ExtraBytes: int64(i + 1), RepoDigest: true})
	}
	if _, err := n.lab.ImportImages(context.Background(), specs...); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "criguard-idle-") // in memory, like /run
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n.Dir = dir
	n.configure("15%", "5%")
	cmd := n.Start().Cmd
	n.Within(harness.Patience, "the service to list", func() bool {
		return harness.Ask[api.Status](n.Node, "status").Runtime.Up
	})
	// The first read of a directory in a day updates its access time (relatime, mount(8)). Read it
	// before the measurement.
	for _, dir := range []string{n.lab.KubeletRoot(), n.lab.PodLogDir(), n.airgap} {
		if err := filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			t.Fatal(err)
		}
	}
	start, begin := n.written(cmd.Process.Pid), time.Now()
	n.Within(2*idle, "the idle time to pass", func() bool { return time.Since(begin) >= idle })
	if got := n.written(cmd.Process.Pid); got != start {
		t.Errorf("wrote %d bytes to disk in %s of idling", got-start, idle)
	}
	if p := harness.Ask[api.HistoryList](n.Node, "history", "--number", "0").Passes; len(p) != 0 {
		t.Errorf("something happened: %+v", p)
	}
}

// written returns the bytes that a process has caused to be written to disk (proc(5), io).
func (n *node) written(pid int) (bytes int64) {
	n.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		n.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "write_bytes: %d", &bytes); err == nil {
			return bytes
		}
	}
	n.Fatalf("no write_bytes in %s", b)
	return 0
}
