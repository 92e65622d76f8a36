package prune_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/test/lab"
)

// idle is long enough for each of the housekeeper's rounds but the images', and
// for some listings.
const idle = 65 * time.Second

// An idle guard writes nothing to any disk, however many images there are: its
// state is in memory, and nothing changes.
func TestIdleWritesNothing(t *testing.T) {
	t.Parallel() // it is a minute of waiting
	n := newNode(t, lab.Containerd2)
	var specs []lab.ImageSpec
	for i := range 100 {
		specs = append(specs, lab.ImageSpec{Name: fmt.Sprintf("registry.local/idle-%03d:1", i), ExtraBytes: int64(i + 1), RepoDigest: true})
	}
	if _, err := n.lab.ImportImages(context.Background(), specs...); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "criguard-idle-") // as /run: in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n.dir = dir
	n.configure("15%", "5%")
	cmd := exec.Command(criguard, "run", "--config", n.config, "--run-dir", n.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	n.until("the service to list", func() bool {
		out, err := exec.Command(criguard, "status", "-o", "json", "--config", n.config, "--run-dir", n.dir).Output()
		return err == nil && strings.Contains(string(out), `"up": true`)
	})
	// A directory that is read for the first time in a day has that written down
	// (relatime, mount(8)): here that is done before.
	for _, dir := range []string{n.lab.KubeletRoot(), n.lab.PodLogDir(), n.airgap} {
		if err := filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			t.Fatal(err)
		}
	}
	start, begin := n.written(cmd.Process.Pid), time.Now()
	n.untilWithin(2*idle, "the idle time to pass", func() bool { return time.Since(begin) >= idle })
	if got := n.written(cmd.Process.Pid); got != start {
		t.Errorf("wrote %d bytes to disk in %s of idling", got-start, idle)
	}
	if p := ask[guard.HistoryList](n, "history", "-n", "0").Passes; len(p) != 0 {
		t.Errorf("something happened: %+v", p)
	}
}

// written is what a process has caused to be written to disk (proc(5), io).
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
