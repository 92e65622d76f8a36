package reclaim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/need"
)

// A filesystem that is mounted in an orphaned log directory keeps its files, and the directory stays
// with a note. This holds for another device, the same device, and a single file.
func TestOrphanedLogsWithAMountStay(t *testing.T) {
	t.Parallel()
	for name, mount := range map[string]func(t *testing.T, outside, inside string){
		"another device": func(t *testing.T, _, inside string) {
			t.Helper()
			need.Mount(t, "tmpfs", inside, "tmpfs", 0, "")
			write(t, inside+"/data", 1, epoch)
		},
		"the same device": func(t *testing.T, outside, inside string) {
			t.Helper()
			need.Mount(t, outside, inside, "", syscall.MS_BIND, "")
		},
		"a file": func(t *testing.T, outside, inside string) {
			t.Helper()
			write(t, inside+"/data", 0, epoch)
			need.Mount(t, outside+"/data", inside+"/data", "", syscall.MS_BIND, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs, outside := filepath.Join(t.TempDir(), "pods"), filepath.Join(t.TempDir(), "a b")
			write(t, outside+"/data", 1, epoch)
			write(t, logs+"/default_alive_r/c/0.log", 10, epoch)
			write(t, logs+"/default_plain_p/c/0.log", 10, epoch)
			orphan := logs + "/default_gone_q"
			write(t, orphan+"/c/0.log", 10, epoch)
			if err := os.MkdirAll(orphan+"/deep/in side", 0o755); err != nil {
				t.Fatal(err)
			}
			mount(t, outside, orphan+"/deep/in side")
			w := newWorld(Options{Logs: logsIn(logs)})
			w.rt.sandboxes = []cri.Sandbox{sandbox("sb-r", "r", true, epoch)}
			r := w.Collect(t.Context(), Plan{Steps: []Step{StepLogs}})[0]
			equal(t, "removed", ids(r.Removed), []string{"default_plain_p"})
			if got := why(r.Kept, "default_gone_q"); got != "a filesystem is mounted in it" {
				t.Errorf("kept: %s", got)
			}
			if err := logsIn(logs).remove("default_gone_q"); err == nil {
				t.Error("removed all the same")
			}
			for _, path := range []string{outside + "/data", orphan + "/deep/in side/data", orphan + "/c/0.log"} {
				if !exists(path) {
					t.Errorf("%s is gone", path)
				}
			}
		})
	}
}

// A filesystem that is mounted after the listing of the mounts is not entered either.
func TestRemoveTreeEntersNoMount(t *testing.T) {
	t.Parallel()
	for name, bind := range map[string]bool{"another device": false, "the same device": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, outside := t.TempDir(), t.TempDir()
			inside := filepath.Join(base, "dir", "in")
			if err := os.MkdirAll(inside, 0o755); err != nil {
				t.Fatal(err)
			}
			if bind {
				need.Mount(t, outside, inside, "", syscall.MS_BIND, "")
			} else {
				need.Mount(t, "tmpfs", inside, "tmpfs", 0, "")
			}
			write(t, inside+"/data", 1, epoch)
			root, err := os.OpenRoot(base)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = root.Close() }()
			top, err := root.Open(".")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = top.Close() }()
			home, err := placeOf(top)
			if err != nil {
				t.Fatal(err)
			}
			if err := removeTree(root, "dir", home, 0); !errors.Is(err, errMounted) {
				t.Errorf("got %v", err)
			}
			if !exists(inside + "/data") {
				t.Error("the mounted filesystem was emptied")
			}
		})
	}
}

// Large and deep directories are removed. One that is nested too deeply stays and causes an error, not
// a crash.
func TestLogsRemoveLargeAndDeep(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "pods")
	for i := range 3 * logBatch {
		write(t, base+"/ns_p_u1/c/"+strings.Repeat("x", 1+i%200)+string(rune('a'+i/200)), 0, epoch)
	}
	path := base + "/ns_p_u2"
	for range maxLogDepth - 2 {
		path += "/" + strings.Repeat("d", 30)
	}
	write(t, path+"/data", 0, epoch)
	write(t, base+"/ns_p_u3"+strings.Repeat("/d", maxLogDepth)+"/data", 0, epoch)
	for name, want := range map[string]error{"ns_p_u1": nil, "ns_p_u2": nil, "ns_p_u3": errTooDeep, "ns_p_u4": nil} {
		if err := logsIn(base).remove(name); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if exists(filepath.Join(base, name)) != (want != nil) {
			t.Errorf("%s: want it gone unless it failed", name)
		}
	}
}

func FuzzMountID(f *testing.F) {
	f.Add("mnt_id:\t29\n")
	f.Fuzz(func(t *testing.T, text string) {
		if id := parseMountID([]byte(text)); id < 0 {
			t.Fatalf("mount %d", id)
		}
	})
}

func TestParseMountID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t4\n": 29, "": 0, "mnt_id: x": 0, "mnt_id:\t-3": 0} {
		if got := parseMountID([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
