package reclaim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/need"
)

// The kubelet's own test of the log directories (P), and the differences.
func TestSelectLogs(t *testing.T) {
	t.Parallel()
	now := Moment{time.Hour, epoch.Add(time.Hour)}
	dirs := func(names ...string) (out []logDir) {
		for _, n := range names {
			out = append(out, logDir{Name: n, Modified: epoch})
		}
		return out
	}
	known := inventory{Sandboxes: []cri.Sandbox{sandbox("a", "123", true, epoch), sandbox("b", "456", false, epoch)},
		Containers: []cri.Container{container("c", "321", "c", epoch)}}
	kubelet := dirs("123", "456", "789", "012", "name_namespace_321", "name_namespace_654")

	t.Run("P as the kubelet, but that names without namespace, name and UID stay", func(t *testing.T) {
		t.Parallel()
		sel := selectLogs(kubelet, known, time.Minute, now)
		equal(t, "removed", ids(sel.Remove), []string{"name_namespace_654"})
		for _, id := range []string{"789", "012"} {
			if got := why(sel.Keep, id); got != "not the log directory of a pod" {
				t.Errorf("%s: %s", id, got)
			}
		}
	})
	t.Run("P a runtime that lists nothing removes nothing", func(t *testing.T) {
		t.Parallel()
		equal(t, "removed", ids(selectLogs(kubelet, inventory{}, time.Minute, now).Remove), nil)
	})
	t.Run("another runtime's logs", func(t *testing.T) {
		t.Parallel()
		other := inventory{Sandboxes: []cri.Sandbox{sandbox("a", "other", true, epoch)}}
		sel := selectLogs(kubelet, other, time.Minute, now)
		equal(t, "removed", ids(sel.Remove), nil)
		if got := why(sel.Keep, "name_namespace_654"); got != "the runtime has no pod that logs here" {
			t.Error(got)
		}
	})
	t.Run("the UID counts, not the name", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Sandboxes: []cri.Sandbox{{ID: "x", UID: "u2", Name: "web-0", Namespace: "ns"}}}
		sel := selectLogs(dirs("ns_web-0_u1", "ns_web-0_u2"), inv, time.Minute, now)
		equal(t, "removed", ids(sel.Remove), []string{"ns_web-0_u1"})
	})
	t.Run("odd names stay", func(t *testing.T) {
		t.Parallel()
		odd := dirs("lost+found", "a_b", "a_b_c_d", "a__u", "_b_u", "a_b_", "ns_p_123")
		equal(t, "removed", ids(selectLogs(odd, known, 0, now).Remove), nil)
	})
	t.Run("young, foreign, of unknown age", func(t *testing.T) {
		t.Parallel()
		ds := []logDir{
			{Name: "n_p_123", Modified: epoch},
			{Name: "n_p_young", Modified: now.Wall.Add(-59 * time.Second)},
			{Name: "n_p_old", Modified: now.Wall.Add(-time.Minute)},
			{Name: "n_p_foreign", Modified: epoch, Foreign: true},
			{Name: "n_p_1970", Modified: time.Unix(10, 0)},
			{Name: "n_p_future", Modified: now.Wall.Add(time.Hour)},
		}
		equal(t, "removed", ids(selectLogs(ds, known, time.Minute, now).Remove), []string{"n_p_old"})
	})
	t.Run("oldest first", func(t *testing.T) {
		t.Parallel()
		ds := append(dirs("n_p_123", "n_p_b", "n_p_a"), logDir{Name: "n_p_c", Modified: epoch.Add(-time.Hour)})
		equal(t, "removed", ids(selectLogs(ds, known, 0, now).Remove), []string{"n_p_c", "n_p_a", "n_p_b"})
	})
}

// write creates a file of this size with an old timestamp.
func write(t *testing.T, path string, size int, modified time.Time) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	for p := path; filepath.Dir(p) != filepath.Dir(filepath.Dir(p)) && len(p) > 1; p = filepath.Dir(p) {
		if err := os.Chtimes(p, modified, modified); err != nil {
			break // above the test's own directory
		}
		if filepath.Base(filepath.Dir(p)) == "pods" {
			break
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestLogsList(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "pods")
	write(t, base+"/ns_p_u1/c/0.log", 100, epoch)
	write(t, base+"/ns_p_u1/c/1.log", 50, epoch.Add(time.Minute))
	write(t, base+"/ns_p_u2/c/0.log", 1, epoch)
	if err := errors.Join(
		os.WriteFile(base+"/a-file", nil, 0o600),
		os.Symlink(base+"/ns_p_u1", base+"/ns_p_link"),
	); err != nil {
		t.Fatal(err)
	}
	dirs, err := logsIn(base).list()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name)
	}
	known := inventory{Sandboxes: []cri.Sandbox{{ID: "s", UID: "u2", Ready: true}}}
	if dirs, err = logsIn(base).measure(dirs, known); err != nil {
		t.Fatal(err)
	}
	equal(t, "directories: neither files nor links", names, []string{"ns_p_u1", "ns_p_u2"})
	if d := dirs[0]; d.Size != 150 || !d.Modified.Equal(epoch.Add(time.Minute)) || d.Foreign {
		t.Errorf("a running log makes its directory young: %+v", d)
	}
	if d := dirs[1]; d.Size != 0 {
		t.Errorf("the directory of a pod that is there was looked into: %+v", d)
	}
	if dirs, err := logsIn(base + "/none").list(); dirs != nil || err != nil {
		t.Errorf("no directory: %v, %v", dirs, err)
	}
	if _, err := logsIn(base + "/a-file").list(); err == nil {
		t.Error("a file is no directory")
	}

	t.Run("a filesystem of its own", func(t *testing.T) {
		dir := base + "/ns_p_u3"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		need.Mount(t, "tmpfs", dir, "tmpfs", 0, "size=16k")
		dirs, err := logsIn(base).list()
		if err != nil || len(dirs) != 3 || !dirs[2].Foreign {
			t.Errorf("got %+v, %v", dirs, err)
		}
	})
}

// Removing a log directory never affects files outside it.
func TestLogsRemoveFollowsNoLink(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "pods")
	outside := filepath.Join(t.TempDir(), "precious")
	write(t, outside+"/data", 1, epoch)
	write(t, base+"/ns_p_u1/c/0.log", 1, epoch)
	write(t, base+"/ns_p_u2/c/0.log", 1, epoch)
	if err := errors.Join(
		os.Symlink(outside, base+"/ns_p_u1/c/dir"),
		os.Symlink(outside+"/data", base+"/ns_p_u1/c/1.log"),
		os.Symlink(outside, base+"/ns_p_link"),
		os.Symlink(base+"/ns_p_u2", base+"/ns_p_inner"),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ns_p_u1", "ns_p_link", "ns_p_inner"} {
		if err := logsIn(base).remove(name); err != nil {
			t.Error(err)
		}
		if exists(filepath.Join(base, name)) {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range []string{"../precious", "..", ".", "", "/etc", "../" + filepath.Base(filepath.Dir(outside)) + "/precious"} {
		if err := logsIn(base).remove(name); err == nil && name != "" {
			t.Errorf("removed %q", name)
		}
	}
	if !exists(outside+"/data") || !exists(base+"/ns_p_u2/c/0.log") {
		t.Error("a link was followed")
	}
}

func TestLogsRemoveOf(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "pods")
	outside := filepath.Join(t.TempDir(), "precious")
	all := []string{"ns_p_u/c/1.log", "ns_p_u/c/1.log.20240501-120000.gz", "ns_p_u/c/1.log.20240501-130000", "ns_p_u/c/10.log", "ns_p_u/c/11.log", "ns_p_u/d/1.log"}
	for _, f := range all {
		write(t, base+"/"+f, 1, epoch)
	}
	write(t, outside+"/1.log", 1, epoch)
	if err := os.Symlink(outside, base+"/ns_p_u/linked"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base+"/ns_p_u/d", base+"/ns_p_u/inner"); err != nil {
		t.Fatal(err)
	}
	left := func() (out []string) {
		for _, f := range all {
			if exists(base + "/" + f) {
				out = append(out, f)
			}
		}
		return out
	}
	for what, path := range map[string]string{
		"no log":                  "",
		"elsewhere":               outside + "/1.log",
		"another attempt's":       base + "/ns_p_u/c/10.log",
		"another container's":     base + "/ns_p_u/d/1.log",
		"of the pod, shared":      base + "/ns_p_u/1.log",
		"upwards":                 base + "/ns_p_u/c/../../../x/c/1.log",
		"by a link":               base + "/ns_p_u/linked/1.log",
		"by a link that stays in": base + "/ns_p_u/inner/1.log",
		"gone":                    base + "/ns_q_v/c/1.log",
	} {
		name := "c"
		switch what {
		case "by a link":
			name = "linked"
		case "by a link that stays in":
			name = "inner"
		}
		if err := logsIn(base).RemoveOf(path, name, 1); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	equal(t, "after all that is not ours", left(), all)
	if !exists(outside + "/1.log") {
		t.Error("a log outside was removed")
	}
	if err := logsIn(base).RemoveOf(base+"/ns_p_u/c/1.log", "c", 1); err != nil {
		t.Error(err)
	}
	equal(t, "after removing attempt 1 of c", left(), []string{"ns_p_u/c/10.log", "ns_p_u/c/11.log", "ns_p_u/d/1.log"})
	if err := logsIn("").RemoveOf(base+"/ns_p_u/c/10.log", "c", 10); err != nil || !slices.Contains(left(), "ns_p_u/c/10.log") {
		t.Error("removed without a log directory")
	}
}
