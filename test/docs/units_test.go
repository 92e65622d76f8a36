package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/need"
)

var (
	iniBlock = regexp.MustCompile("(?s)```ini\n(.*?)```")
	unitName = regexp.MustCompile(`(?m)^ *# /etc/systemd/system/(\S+\.(?:service|path|timer)).*$`)
)

// units returns the files in a block: those that its comments name, or else a single drop-in.
func units(block string) map[string]string {
	names := unitName.FindAllStringSubmatchIndex(block, -1)
	if names == nil {
		return map[string]string{"criguard.service.d/docs.conf": block}
	}
	files := map[string]string{}
	for i, m := range names {
		end := len(block)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		files[block[m[2]:m[3]]] = block[m[1]:end]
	}
	return files
}

// systemd accepts every unit and every drop-in in the documents.
func TestUnitsAreGood(t *testing.T) {
	need.Root(t)
	room, err := lab.OpenRoom(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer room.Close()
	unit, err := os.ReadFile(filepath.Join(root, "systemd/criguard.service"))
	if err != nil {
		t.Fatal(err)
	}
	dir := "/tmp/units"
	defer os.RemoveAll(room.Path(dir))
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range iniBlock.FindAllStringSubmatch(string(text), -1) {
			files := units(m[1])
			files["criguard.service"] = strings.Replace(string(unit), "/usr/bin/criguard ", "/usr/bin/true ", 1)
			verify := []string{"verify", "--man=no"}
			if err := os.RemoveAll(room.Path(dir)); err != nil {
				t.Fatal(err)
			}
			for file, text := range files {
				path := room.Path(filepath.Join(dir, file))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(file, ".conf") {
					verify = append(verify, filepath.Join(dir, file))
				}
			}
			out, err := room.Command(t.Context(), "systemd-analyze", verify...).CombinedOutput()
			if err != nil || strings.Contains(string(out), dir) {
				t.Errorf("%s: %v\n%s\n%s", name, err, out, m[1])
			}
		}
	}
}

func TestUnits(t *testing.T) {
	got := units("# /etc/systemd/system/a.path\n[Path]\n\n# /etc/systemd/system/a.service, in words\n[Service]\n")
	if len(got) != 2 || got["a.path"] != "\n[Path]\n\n" || !strings.HasSuffix(got["a.service"], "[Service]\n") {
		t.Errorf("%q", got)
	}
	if got := units("[Service]\n"); got["criguard.service.d/docs.conf"] == "" {
		t.Errorf("%q", got)
	}
}

var execStart = regexp.MustCompile(`(?m)^ExecStart=/bin/sh -c '(criguard metrics .*)'$`)

// The unit in docs/fleet.md replaces the file for node_exporter at once, with all that criguard prints, even if the agent does
// not answer. If the service does not, the file stays, so that its age shows it.
func TestMetricsUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/fleet.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := execStart.FindSubmatch(text)
	if m == nil {
		t.Fatal("docs/fleet.md has no unit that writes metrics")
	}
	bin, dir := t.TempDir(), t.TempDir()
	const service = "criguard_build_info 1\n"
	for _, printed := range []string{service + "criguard_fleet_alone 0\n", service + "criguard_fleet_alone 1\n", service, ""} {
		// While criguard runs, node_exporter reads the old file.
		stub := fmt.Sprintf("#!/bin/sh\ncp criguard.prom before 2>/dev/null\n[ \"$1\" = metrics ] && printf '%s'\nexit 3\n", printed)
		if err := os.WriteFile(filepath.Join(bin, "criguard"), []byte(stub), 0o755); err != nil {
			t.Fatal(err)
		}
		old, _ := os.ReadFile(filepath.Join(dir, "criguard.prom"))
		cmd := exec.Command("/bin/sh", "-c", string(m[1]))
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		want := printed
		out, err := cmd.CombinedOutput()
		if printed == "" {
			want = string(old)
		}
		if (err == nil) != (printed != "") {
			t.Fatalf("%s: %v, %s", m[1], err, out)
		}
		before, _ := os.ReadFile(filepath.Join(dir, "before"))
		now, _ := os.ReadFile(filepath.Join(dir, "criguard.prom"))
		left, err := filepath.Glob(filepath.Join(dir, "*.new"))
		if string(before) != string(old) || string(now) != want || err != nil || len(left) > 0 {
			t.Errorf("%s: the file was %q meanwhile and then %q, want %q and %q; left %v, %v", m[1], before, now, old, want, left, err)
		}
	}
}
