package reclaim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/need"
)

func savedLedger(t *testing.T, generations ...time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "ledger.json")
	l, err := OpenLedger(path, "boot", 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, now := range generations {
		img := image(i, 1)
		l.note([]cri.Image{image(0, 1), img}, usedOnly(img), now)
		if err := l.Save(now); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestLedgerFile(t *testing.T) {
	t.Parallel()
	t.Run("absent", func(t *testing.T) {
		t.Parallel()
		l, err := OpenLedger(filepath.Join(t.TempDir(), "none", "ledger"), "boot", 0)
		if err != nil || len(l.known()) != 0 {
			t.Errorf("got %v, %q", err, l.known())
		}
	})
	t.Run("what was saved is loaded", func(t *testing.T) {
		t.Parallel()
		path := savedLedger(t, time.Hour, 2*time.Hour)
		l, err := OpenLedger(path, "boot", 3*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if h := l.history(image(1, 1).ID, 3*time.Hour); h.age != time.Hour || !h.used {
			t.Errorf("loaded %+v", h)
		}
		if _, err := os.Stat(path + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("temporary file: %v", err)
		}
	})
	t.Run("damaged: the generation before it, and a warning", func(t *testing.T) {
		t.Parallel()
		path := savedLedger(t, time.Hour, 2*time.Hour)
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLedger(path, "boot", 3*time.Hour)
		if !errors.Is(err, errLedger) {
			t.Errorf("warning: %v", err)
		}
		equal(t, "images", l.known(), []string{cri.TrimID(image(0, 1).ID)})
		if _, err := os.Stat(path + ".damaged"); err != nil {
			t.Errorf("not set aside: %v", err)
		}
		if _, err := OpenLedger(path, "boot", 3*time.Hour); err != nil {
			t.Errorf("warned twice: %v", err)
		}
	})
	t.Run("both damaged: everything is new", func(t *testing.T) {
		t.Parallel()
		path := savedLedger(t, time.Hour, 2*time.Hour)
		for _, p := range []string{path, path + ".prev"} {
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l, err := OpenLedger(path, "boot", 3*time.Hour)
		if !errors.Is(err, errLedger) {
			t.Errorf("warning: %v", err)
		}
		if h := l.history(image(0, 1).ID, 3*time.Hour); h.age != 0 || h.used {
			t.Errorf("an unknown age protects: %+v", h)
		}
		l.note([]cri.Image{image(0, 1)}, usedOnly(), 3*time.Hour)
		if err := l.Save(3 * time.Hour); err != nil {
			t.Errorf("save after damage: %v", err)
		}
		if _, err := OpenLedger(path, "boot", 3*time.Hour); err != nil {
			t.Errorf("load after damage: %v", err)
		}
	})
	t.Run("of another version", func(t *testing.T) {
		t.Parallel()
		path := savedLedger(t, time.Hour)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		raw = bytes.Replace(raw, []byte(`"version":1`), []byte(`"version":2`), 1)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLedger(path, "boot", 0); !errors.Is(err, errLedger) || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("warning: %v", err)
		}
	})
	t.Run("cut off anywhere, one generation is whole", func(t *testing.T) {
		t.Parallel()
		path := savedLedger(t, time.Hour, 2*time.Hour)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		prev, err := os.ReadFile(path + ".prev")
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			dir := t.TempDir()
			p := filepath.Join(dir, "ledger.json")
			if err := errors.Join(os.WriteFile(p, whole[:n], 0o600), os.WriteFile(p+".prev", prev, 0o600)); err != nil {
				t.Fatal(err)
			}
			l, err := OpenLedger(p, "boot", 3*time.Hour)
			if !errors.Is(err, errLedger) || len(l.known()) != 1 {
				t.Fatalf("cut off at %d: %v, %q", n, err, l.known())
			}
		}
	})
	t.Run("any bit flipped is noticed", func(t *testing.T) {
		t.Parallel()
		whole, err := os.ReadFile(savedLedger(t, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		want, err := parseLedger(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			torn := bytes.Clone(whole)
			torn[i] ^= 1 << (i % 8)
			got, err := parseLedger(bytes.NewReader(torn))
			if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("byte %d: took %q for whole", i, torn)
			}
		}
	})
}

func TestLedgerSaving(t *testing.T) {
	t.Parallel()
	note := func(l *Ledger, now time.Duration) { l.note([]cri.Image{image(0, 1)}, usedOnly(), now) }
	written := func(path string) int {
		raw, err := os.ReadFile(path)
		if err != nil {
			return 0
		}
		s, err := parseLedger(bytes.NewReader(raw))
		if err != nil {
			return -1
		}
		return int(s.Time / time.Minute)
	}
	t.Run("at most once an hour while it runs", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "l")
		l, _ := OpenLedger(path, "boot", time.Minute)
		for now := time.Minute; now < 150*time.Minute; now += time.Minute {
			note(l, now)
			if err := l.SaveDue(now); err != nil {
				t.Fatal(err)
			}
			want := int((now-time.Minute)/time.Hour)*60 + 1
			if got := written(path); got != want {
				t.Fatalf("at %v the file is of minute %d, want %d", now, got, want)
			}
		}
	})
	t.Run("at the end, unless it was just saved", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "l")
		boot := func(id string, up time.Duration) *Ledger {
			l, err := OpenLedger(path, id, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for now := time.Minute; now <= up; now += time.Minute {
				note(l, now)
				if err := l.SaveDue(now); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.SaveEnd(up); err != nil {
				t.Fatal(err)
			}
			return l
		}
		boot("a", time.Minute) // saved at once: there was no file
		boot("b", 45*time.Minute)
		if got := written(path); got != 46 {
			t.Errorf("after 45 minutes the file is of minute %d", got)
		}
		boot("c", 4*time.Minute)
		if got := written(path); got != 46 {
			t.Errorf("after 4 minutes more the file is of minute %d", got)
		}
		l := boot("d", 10*time.Minute)
		if h := l.history(image(0, 1).ID, 10*time.Minute); h.age != 55*time.Minute {
			t.Errorf("the image is %v old", h.age)
		}
	})
	t.Run("a stop at once, and again when that does not work", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "dir", "l")
		l, _ := OpenLedger(path, "boot", time.Minute)
		save := func(now time.Duration, want int) {
			t.Helper()
			if _ = l.SaveDue(now); written(path) != want {
				t.Errorf("at %v the file is of minute %d, want %d", now, written(path), want)
			}
		}
		note(l, time.Minute)
		save(time.Minute, 1)
		note(l, 2*time.Minute)
		save(2*time.Minute, 1)
		l.NoteStopped([]string{"app:1"}, 3*time.Minute)
		save(3*time.Minute, 3)
		l.NoteStopped([]string{"app:2"}, 4*time.Minute)
		if err := os.Mkdir(path+".tmp", 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path+".tmp/x", "in the way")
		save(4*time.Minute, 3)
		if err := os.RemoveAll(path + ".tmp"); err != nil {
			t.Fatal(err)
		}
		save(5*time.Minute, 5)
		note(l, 6*time.Minute)
		save(6*time.Minute, 5)
	})
	t.Run("nothing new is not written", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "l")
		l, _ := OpenLedger(path, "boot", 0)
		if err := l.Save(time.Hour); err != nil || written(path) != 0 {
			t.Errorf("an empty ledger was written: %v", err)
		}
	})
	t.Run("without a path it stays in memory", func(t *testing.T) {
		t.Parallel()
		l, err := OpenLedger("", "boot", 0)
		if err != nil {
			t.Fatal(err)
		}
		note(l, time.Minute)
		if err := l.Save(time.Minute); err != nil {
			t.Error(err)
		}
	})
	t.Run("a disk that does not take it is told of once, and again after it worked", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in place of the directory
			t.Fatal(err)
		}
		path := filepath.Join(dir, "l")
		l, _ := OpenLedger(path, "boot", 0)
		var told []string
		save := func(now time.Duration) {
			note(l, now)
			if err := l.Save(now); err != nil {
				told = append(told, now.String())
			}
		}
		save(1 * time.Minute)
		save(2 * time.Minute)
		if h := l.history(image(0, 1).ID, 3*time.Minute); h.age != 2*time.Minute {
			t.Errorf("the ledger in memory has lost its images: %+v", h)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		save(3 * time.Minute)
		if written(path) != 3 {
			t.Errorf("not written once the disk took it: minute %d", written(path))
		}
		if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		save(4 * time.Minute)
		save(5 * time.Minute)
		equal(t, "told at", told, []string{"1m0s", "4m0s"})
	})
	t.Run("a disk that is full", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		need.Mount(t, "tmpfs", dir, "tmpfs", 0, "size=16k")
		path := filepath.Join(dir, "l")
		l, _ := OpenLedger(path, "boot", 0)
		note(l, time.Minute)
		if err := l.Save(time.Minute); err != nil {
			t.Fatal(err)
		}
		var many []cri.Image
		for n := range 400 {
			many = append(many, image(n, 1))
		}
		l.note(many, usedOnly(), 2*time.Minute)
		if err := l.Save(2 * time.Minute); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("want no space left, got %v", err)
		}
		if written(path) != 1 {
			t.Errorf("the old one was lost: minute %d", written(path))
		}
		if _, err := os.Stat(path + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the torn file holds on to the space")
		}
	})
	t.Run("read-only", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		need.Mount(t, "tmpfs", dir, "tmpfs", 0, "size=64k")
		path := filepath.Join(dir, "l")
		if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLedger(path, "boot", 0)
		if !errors.Is(err, errLedger) {
			t.Errorf("warning: %v", err)
		}
		note(l, time.Minute)
		if err := l.Save(time.Minute); !errors.Is(err, syscall.EROFS) {
			t.Errorf("want read-only, got %v", err)
		}
		note(l, 2*time.Minute)
		if err := l.Save(2 * time.Minute); err != nil {
			t.Errorf("told twice: %v", err)
		}
	})
	t.Run("notes are taken while it is written", func(t *testing.T) {
		t.Parallel()
		l, _ := OpenLedger(filepath.Join(t.TempDir(), "l"), "boot", 0)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 50 {
					now := time.Duration(n) * time.Second
					if i%2 == 0 {
						note(l, now)
						l.NoteStopped([]string{"x"}, now)
					} else if err := l.Save(now); err != nil {
						t.Error(err)
					}
					l.history("x", now)
				}
			})
		}
		wg.Wait()
	})
}

// writerEnv makes the test binary write ledgers.
const writerEnv = "CRIGUARD_TEST_LEDGER"

// writeLedgerForever saves one generation after another, and prints each that is safe, until it is
// killed.
func writeLedgerForever(arg string) {
	path, from, _ := strings.Cut(arg, "|")
	n, err := strconv.Atoi(from)
	if err != nil {
		panic(err)
	}
	l, err := OpenLedger(path, "boot", 0)
	for ; err == nil; n++ {
		now := time.Duration(n) * time.Second
		l.note([]cri.Image{image(0, 1), image(n%50, 1)}, usedOnly(image(0, 1)), now)
		if err = l.Save(now); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

// The test kills a writer at random moments. The file always loads, and is never older than the last
// generation that was reported as saved.
func TestLedgerSurvivesKill(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger.json")
	rng := rand.New(rand.NewPCG(5, 6))
	safe := 0
	for round := range 20 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d", writerEnv, path, safe+1))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		killed := false
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("writer: %s", lines.Text())
			}
			safe = n
			if !killed {
				killed = true
				time.AfterFunc(time.Duration(rng.IntN(2000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait() // it was killed
		if !killed {
			t.Fatal("the writer wrote nothing")
		}
		l, err := OpenLedger(path, "boot", time.Duration(safe)*time.Second)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if got := int(l.latest / time.Second); got < safe {
			t.Fatalf("round %d: generation %d was safe, %d is there", round, safe, got)
		}
	}
	t.Logf("%d generations written", safe)
}

func FuzzParseLedger(f *testing.F) {
	good, err := snapshot{Boot: "b", At: 1, Time: 2, Images: map[string]record{"a": {FirstSeen: 1, Used: true}}, Stopped: map[string]time.Duration{"x:1": 1}}.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version":1,"checksum":"","ledger":null}`))
	f.Add([]byte(`{"version":1,"checksum":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","ledger":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Also parse the input as the body, with a correct checksum.
		wrapped, err := json.Marshal(map[string]any{"version": 1, "checksum": checksum(raw), "ledger": json.RawMessage(raw)})
		inputs := [][]byte{raw}
		if err == nil {
			inputs = append(inputs, wrapped)
		}
		for _, in := range inputs {
			s, err := parseLedger(bytes.NewReader(in))
			if err != nil {
				if !errors.Is(err, errLedger) {
					t.Fatalf("unexpected kind of error: %v", err)
				}
				continue
			}
			l := newLedger("b")
			l.restore(s, time.Hour)
			for id := range s.Images {
				if h := l.history(id, time.Hour); h.age < 0 || h.unused < 0 {
					t.Fatalf("an image from the future: %+v", h)
				}
			}
			again, err := l.snapshotForTest(time.Hour).marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parseLedger(bytes.NewReader(again)); err != nil {
				t.Fatalf("what was loaded cannot be loaded again: %v", err)
			}
		}
	})
}

func (l *Ledger) snapshotForTest(now time.Duration) snapshot {
	return snapshot{Boot: l.boot, At: now, Time: l.time(now), Images: l.images, Stopped: l.stopped}
}
