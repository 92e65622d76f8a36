package package_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/need"
)

// root is the root of the tree, relative to this package.
const root = "../.."

// version and epoch are those of the tested packages, independent of git.
const (
	version = "v1.2.3-4-g0123456789ab"
	epoch   = "1795258157" // 2026-11-21 10:49:17 UTC
)

// dist holds the packages of all architectures, built once.
var dist string

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, func(ctx context.Context, dir string) error {
		dist = dir
		return makePackages(ctx, root, dist, version)
	}))
}

// makePackages runs `make packages` with an explicit version. Without architectures, it builds all
// of them.
func makePackages(ctx context.Context, tree, dist, version string, arches ...string) error {
	args := []string{"-C", tree, "packages", "DIST=" + dist, "VERSION=" + version, "EPOCH=" + epoch}
	if len(arches) > 0 {
		args = append(args, "ARCH="+strings.Join(arches, " "))
	}
	cmd := exec.CommandContext(ctx, "make", args...)
	cmd.Env = unmade()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make packages: %w\n%s", err, out)
	}
	return nil
}

// unmade returns the environment without the variables that an outer make has set.
func unmade() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MAKE") && !strings.HasPrefix(e, "MFLAGS") {
			env = append(env, e)
		}
	}
	return env
}

// openRoom opens the room for the duration of a test.
func openRoom(t *testing.T) *room {
	t.Helper()
	need.Root(t)
	r, err := lab.OpenRoom(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	in := &room{T: t, Room: r, tmp: "/tmp/" + strings.ReplaceAll(t.Name(), "/", "_")}
	in.clean()
	t.Cleanup(func() {
		in.clean()
		if err := os.RemoveAll(r.Path(in.tmp)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(r.Path(in.tmp), 0o755); err != nil {
		t.Fatal(err)
	}
	return in
}

// room is a room with a directory for the test.
type room struct {
	*testing.T
	*lab.Room
	tmp  string
	path string // precedes the room's PATH
}

// put copies a file of the machine into the test's directory and returns its path there.
func (r *room) put(file string) string {
	r.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	return r.write(filepath.Base(file), string(text), 0o644)
}

func (r *room) write(name, text string, mode os.FileMode) string {
	r.Helper()
	path := filepath.Join(r.tmp, name)
	if err := os.WriteFile(r.Path(path), []byte(text), mode); err != nil {
		r.Fatal(err)
	}
	return path
}

// try runs a program in the room and returns its output on both streams.
func (r *room) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for cleanup after the test
	defer cancel()
	cmd := r.Command(ctx, name, args...)
	if r.path != "" {
		cmd.Env = append(cmd.Env, "PATH="+r.path+":/usr/sbin:/usr/bin:/sbin:/bin")
	}
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

// do is try for a program that must succeed.
func (r *room) do(name string, args ...string) string {
	r.Helper()
	out, err := r.try(name, args...)
	if err != nil {
		r.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// text returns the content of a file in the room, or "" if it does not exist.
func (r *room) text(path string) string {
	b, _ := os.ReadFile(r.Path(path))
	return string(b)
}

// there reports whether a file exists in the room, even as a dangling link.
func (r *room) there(path string) bool {
	_, err := os.Lstat(r.Path(path))
	return err == nil
}
