package package_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/need"
)

// Two clones of the same commit yield identical packages, byte for byte, regardless of directory,
// umask and environment.
func TestReproducible(t *testing.T) {
	need.Root(t) // to change the host name
	first := cloneAndMake(t, "a", "umask 022; hostname one", "TZ=UTC", "LC_ALL=C", "USER=alice")
	second := cloneAndMake(t, "a/longer/path", "umask 077; hostname two", "TZ=Asia/Kathmandu", "LC_ALL=C.UTF-8", "USER=bob", "GOMAXPROCS=1")
	if !maps.Equal(first, second) || len(first) != 2 {
		t.Errorf("got %v and %v", first, second)
	}
	head := strings.TrimSpace(output(t, "git", "-c", "safe.directory=*", "-C", root, "rev-parse", "HEAD"))
	for name := range first {
		if tagged := output(t, "git", "-c", "safe.directory=*", "-C", root, "tag"); tagged == "" && !strings.Contains(name, "0.0.0~git2") ||
			!strings.Contains(name, head[:12]) && tagged == "" {
			t.Errorf("%s is not named after commit %s", name, head)
		}
	}
}

// cloneAndMake clones the tree and builds packages of a foreign architecture, with only Go. It
// returns the checksum of each package.
func cloneAndMake(t *testing.T, dir, habits string, env ...string) map[string]string {
	t.Helper()
	dir = filepath.Join(t.TempDir(), dir)
	output(t, "git", "-c", "safe.directory=*", "clone", "-q", root, dir)
	cmd := exec.CommandContext(t.Context(), "unshare", "--uts", "sh", "-ec", habits+`; exec make packages ARCH=armv6`)
	cmd.Dir = dir
	cmd.Env = append(unmade(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make packages: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "dist", "criguard*"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sums[filepath.Base(file)] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return sums
}

// Without git and without a timestamp, the packages would differ each day, so the build fails with
// a hint.
func TestTimeIsAsked(t *testing.T) {
	cmd := exec.CommandContext(context.Background(), "go", "run", "./packaging", "-version", "devel", "amd64")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "set SOURCE_DATE_EPOCH") {
		t.Errorf("%v: %s", err, out)
	}
}
