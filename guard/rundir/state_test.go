package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// state is a state like those that the service saves.
type state struct{ Text string }

func parseState(b []byte) (s state, err error) {
	err = json.Unmarshal(b, &s)
	return s, err
}

// write returns a function that creates the file with a text.
func write(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
}

// A missing file is the zero state. A file that cannot be read or parsed is an error, stays as it is, and delays no
// start: a FIFO without a writer would block a reader that waits for one.
func TestLoad(t *testing.T) {
	const whole = `{"Text":"x"}`
	pad := strings.Repeat(" ", maxState-len(whole))
	for name, c := range map[string]struct {
		create func(path string) error
		want   string
		err    string
	}{
		"missing":       {func(string) error { return nil }, "", ""},
		"whole":         {write(whole), "x", ""},
		"empty":         {write(""), "", "unexpected end"},
		"torn":          {write(whole[:5]), "", "unexpected end"},
		"largest":       {write(whole + pad), "x", ""},
		"too large":     {write(whole + pad + " "), "", "too large"},
		"FIFO":          {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "", "not a regular file"},
		"directory":     {func(path string) error { return os.Mkdir(path, 0o700) }, "", "not a regular file"},
		"symbolic link": {func(path string) error { return os.Symlink("/dev/zero", path) }, "", "too many levels"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Dir(t.TempDir())
			path := d.Path("file")
			if err := c.create(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(path)
			got, err := Load(d, "file", forRoot(), parseState)
			if got.Text != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v; want %q, %q", got, err, c.want, c.err)
			}
			after, _ := os.Lstat(path)
			if (before == nil) != (after == nil) || before != nil && (!os.SameFile(before, after) || before.Size() != after.Size()) {
				t.Errorf("the file was %v and is %v", before, after)
			}
		})
	}
}

// A load returns what parse does, even beside an error: a part of the state may be usable.
func TestLoadReturnsWhatParseDoes(t *testing.T) {
	d := Dir(t.TempDir())
	if err := Save(d, "file", forRoot(), state{"x"}, !Synced); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	got, err := Load(d, "file", forRoot(), func([]byte) (int, error) { return 7, bad })
	if got != 7 || !errors.Is(err, bad) {
		t.Errorf("%d, %v", got, err)
	}
}

// A saved state is loaded again. It is one line that any program may print, and replaces a damaged file.
func TestSave(t *testing.T) {
	for _, sync := range []bool{Synced, !Synced} {
		d, want := Dir(t.TempDir()), state{"<a>&\x1b[2J\u202e\n"}
		if err := write("{")(d.Path("file")); err != nil {
			t.Fatal(err)
		}
		if err := Save(d, "file", forRoot(), want, sync); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(d, "file", forRoot(), parseState); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
		text, err := os.ReadFile(d.Path("file"))
		if err != nil || !strings.HasSuffix(string(text), "}\n") || bytes.ContainsFunc(text[:len(text)-1], func(r rune) bool { return r < ' ' || r == '\u202e' }) {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// A file has the mode of its access, whatever the umask and the mode before. A load takes away only excess
// permissions.
func TestStateFileMode(t *testing.T) {
	for _, c := range []struct{ umask, before, access, loaded fs.FileMode }{
		{0, 0o666, 0o600, 0o600},
		{0, 0o666, 0o644, 0o644},
		{0o077, 0o600, 0o644, 0o600},
		{0o077, 0o644, 0o644, 0o644},
	} {
		t.Run(fmt.Sprintf("umask %o, %o to %o", c.umask, c.before, c.access), func(t *testing.T) {
			d, access := Dir(t.TempDir()), Access{c.access, -1}
			path := d.Path("file")
			mode := func() fs.FileMode {
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				return st.Mode()
			}
			if err := errors.Join(write("{}")(path), os.Chmod(path, c.before)); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(d, "file", access, parseState); err != nil || mode() != c.loaded {
				t.Errorf("loaded: %v, %v; want %v", mode(), err, c.loaded)
			}
			defer syscall.Umask(syscall.Umask(int(c.umask)))
			if err := Save(d, "file", access, state{}, !Synced); err != nil || mode() != c.access {
				t.Errorf("saved: %v, %v; want %v", mode(), err, c.access)
			}
		})
	}
}

// A reader beside a writer sees one state or the other, never a part, and never no file.
func TestSaveIsAtomic(t *testing.T) {
	d := Dir(t.TempDir())
	states := []state{{strings.Repeat("a", 100_000)}, {strings.Repeat("b", 200_000)}}
	save := func(s state) {
		if err := Save(d, "file", forRoot(), s, !Synced); err != nil {
			t.Error(err)
		}
	}
	save(states[0])
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if got, err := Load(d, "file", forRoot(), parseState); err != nil || got != states[0] && got != states[1] {
				t.Errorf("read %.10q (%d bytes), %v", got.Text, len(got.Text), err)
				return
			}
		}
	})
	for i := range 200 {
		save(states[i%2])
	}
	close(done)
	reader.Wait()
}

// A write that fails keeps the old content and leaves no temporary file.
func TestSaveThatFails(t *testing.T) {
	d, full := Dir(t.TempDir()), errors.New("no space left")
	if err := Save(d, "file", forRoot(), state{"old"}, !Synced); err != nil {
		t.Fatal(err)
	}
	if err := Save(d, "file", forRoot(), func() {}, !Synced); err == nil || !strings.Contains(err.Error(), "encode file") {
		t.Errorf("a state that has no JSON: %v", err)
	}
	err := forRoot().ReplaceBy(string(d), "file", !Synced, func(w io.Writer) error {
		_, err := io.WriteString(w, `{"Te`)
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("a write that fails: %v", err)
	}
	if err := Save(Dir(d.Path("none")), "file", forRoot(), state{}, !Synced); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if got, err := Load(d, "file", forRoot(), parseState); err != nil || got.Text != "old" {
		t.Errorf("got %+v, %v", got, err)
	}
	if all, err := os.ReadDir(string(d)); err != nil || len(all) != 1 {
		t.Errorf("files: %v, %v", all, err)
	}
}

// What cannot be saved is kept, and saved by a later retry. A newer save replaces it.
func TestStatesRetry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	s := States{Dir: Dir(dir), Access: forRoot()}
	saved := func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "a"))
		return string(b)
	}
	for _, v := range []int{1, 2} {
		if err := s.Save("a", v); err == nil {
			t.Fatal("saved without a directory")
		}
	}
	s.Retry()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if s.Retry(); saved() != "2\n" {
		t.Errorf("after a retry, the file is %q", saved())
	}
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if s.Retry(); saved() != "" {
		t.Errorf("a retry without need has saved %q", saved())
	}
}
