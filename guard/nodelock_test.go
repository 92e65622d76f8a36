package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
)

// A second guard of the same pods cgroup or runtime is refused and names the other's run directory.
func TestNodeLock(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	cfg := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+socket+"'"))
	lock := func(dir string, cfg config.Config) error {
		unlock, _, err := lockNode(ServiceOptions{Config: cfg, Machine: machine.Real(), Dir: rundir.Dir(dir)})
		if err == nil {
			t.Cleanup(unlock)
		}
		return err
	}
	if err := lock("/run/first", cfg); err != nil {
		t.Fatal(err)
	}
	other := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/elsewhere'"))
	sameRuntime, otherSpelling, sameCgroup := other, other, cfg
	sameRuntime.Runtime.Endpoint, otherSpelling.Runtime.Endpoint, sameCgroup.Runtime.Endpoint = "unix://"+socket, "unix:"+socket, ""
	for name, cfg := range map[string]config.Config{"the same": cfg, "the runtime": sameRuntime, "the runtime, spelt unix:/": otherSpelling, "the pods cgroup": sameCgroup} {
		if err := lock("/run/second", cfg); err == nil || !strings.Contains(err.Error(), "/run/first") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := lock("/run/third", other); err != nil {
		t.Errorf("another node: %v", err)
	}
}

// Guards of separate runtimes with separate pods cgroups run side by side, whichever of the cgroups FindPods
// finds first. Without pods_cgroup, a guard locks the cgroup that it finds.
func TestNodeLockNamesThePodsCgroup(t *testing.T) {
	base := configtest.Parse(t, nodetest.Config(t))
	layout, _, err := detectCgroups(base.Node)
	if err != nil {
		t.Fatal(err)
	}
	lock := func(pods, endpoint string) error {
		cfg := base
		cfg.Node.PodsCgroup, cfg.Runtime.Endpoint = pods, endpoint
		unlock, _, err := lockNode(ServiceOptions{Config: cfg, Machine: machine.Real(), Dir: "/run/" + rundir.Dir(endpoint)})
		if err == nil {
			t.Cleanup(unlock)
		}
		return err
	}
	if err := lock("/kubepods", "/first"); err != nil {
		t.Fatal(err)
	}
	if err := lock("", "/second"); !errors.Is(err, rundir.ErrRunning) {
		t.Errorf("the same pods cgroup, found: %v", err)
	}
	if err := os.Mkdir(layout.Dir("memory", "/a-kubepods"), 0o700); err != nil {
		t.Fatal(err)
	}
	if found, _, err := layout.FindPods(); found != "/a-kubepods" {
		t.Fatalf("found %s, %v", found, err)
	}
	if err := lock("/a-kubepods", "/third"); err != nil {
		t.Errorf("another pods cgroup, which is found first: %v", err)
	}
	if err := lock("", "/fourth"); !errors.Is(err, rundir.ErrRunning) {
		t.Errorf("the one found first, found: %v", err)
	}
}

// The lock is free once its holder has released it.
func TestNodeLockIsReleased(t *testing.T) {
	name := "test " + t.TempDir()
	unlock, _, err := rundir.Dir("/run/first").LockNode(name)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if unlock, _, err = rundir.Dir("/run/second").LockNode(name); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// The parent of a run directory has to exist: a typing error must not start a second guard beside it.
func TestRunDirParentMustExist(t *testing.T) {
	d := rundir.Dir(filepath.Join(t.TempDir(), "typo", "run"))
	if _, err := d.Lock(); err == nil || !strings.Contains(err.Error(), "whose parent exists") {
		t.Errorf("got %v", err)
	}
}
