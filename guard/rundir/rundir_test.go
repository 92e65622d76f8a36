package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// Of processes that start at once, only one creates the directory, and none fails.
func TestCreateAtOnce(t *testing.T) {
	base := t.TempDir()
	for i := range 100 {
		d := Dir(filepath.Join(base, strconv.Itoa(i)))
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				<-start
				if err := d.create(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Dir(file).create(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file in its place: %v", err)
	}
}

// A flag counts more than the service manager, which may name several directories.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		named, env string
		want       Dir
	}{
		{"", "", Default}, {"", "/run/a", "/run/a"}, {"/run/b", "/run/a", "/run/b"}, {"", "/run/a:/run/a/events", "/run/a"},
	} {
		t.Setenv("RUNTIME_DIRECTORY", c.env)
		if got := Find(c.named); got != c.want {
			t.Errorf("named %q, %q in the environment: %s, want %s", c.named, c.env, got, c.want)
		}
	}
}

// A command in the unit of another program asks the service in the default directory.
func TestFindService(t *testing.T) {
	ours, theirs := Dir(t.TempDir()), Dir(t.TempDir())
	l, err := ours.Lock()
	if err != nil {
		t.Fatal(err)
	}
	l.Release() // the service may have ended
	for _, c := range []struct{ named, env, want Dir }{
		{"", "", Default}, {"", ours, ours}, {"", theirs, Default}, {theirs, ours, theirs},
	} {
		t.Setenv("RUNTIME_DIRECTORY", string(c.env))
		if got := FindService(string(c.named)); got != c.want {
			t.Errorf("named %q, %q in the environment: %s, want %s", c.named, c.env, got, c.want)
		}
	}
}
