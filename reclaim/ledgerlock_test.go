package reclaim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// writersEnv makes the test binary one of several writers of one ledger.
const writersEnv = "CRIGUARD_TEST_LEDGER_WRITERS"

// saves is how often each writer saves.
const saves = 300

// saveAlongOthers repeatedly records an image of its own and saves the ledger. Every third time it
// re-opens the ledger first, like another command.
func saveAlongOthers(arg string) {
	path, from, _ := strings.Cut(arg, "|")
	own, err := strconv.Atoi(from)
	l, openErr := OpenLedger(path, "boot", 0)
	err = errors.Join(err, openErr)
	for n := 1; n <= saves && err == nil; n++ {
		now := time.Duration(n) * time.Second
		if n%3 == 0 {
			if l, err = OpenLedger(path, "boot", now); err != nil {
				break
			}
		}
		l.note([]cri.Image{image(own, 1)}, usedOnly(), now)
		l.NoteStopped([]string{fmt.Sprintf("app%d-%d:1", own, n)}, now)
		err = l.Save(now)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Two processes that save one ledger both succeed, find no damaged file, and lose nothing.
func TestLedgerHasTwoWriters(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state", "ledger.json")
	failed := make(chan error)
	const writers = 2
	for i := range writers {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d", writersEnv, path, i))
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			failed <- err
		}()
	}
	reads := 0
	for ended := 0; ended < writers; {
		select {
		case err := <-failed:
			if ended++; err != nil {
				t.Errorf("a writer: %v", err)
			}
		default:
			if _, err := ReadLedger(path, "boot", saves*time.Second); err != nil {
				t.Errorf("a reader: %v", err)
			}
			reads++
		}
	}
	if exists(path+".damaged") || exists(path+".tmp") {
		t.Error("a ledger was set aside, or a write left half done")
	}
	s, err := readLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Stopped) != writers*saves {
		t.Errorf("%d of %d stops are in the file", len(s.Stopped), writers*saves)
	}
	t.Logf("%d saves, %d reads", writers*saves, reads)
}

// Reading a ledger changes no file, whatever its state. Opening it moves a damaged file aside and
// removes the temporary file of a crash.
func TestReadLedgerChangesNothing(t *testing.T) {
	t.Parallel()
	path := savedLedger(t, time.Hour, 2*time.Hour)
	dir := filepath.Dir(path)
	writeFile(t, path, "{")
	writeFile(t, path+".tmp", "half a led")
	writeFile(t, path+".tmp.bak", "somebody else's")
	if err := os.Remove(path + ".lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	before := files()
	l, err := ReadLedger(path, "boot", 3*time.Hour)
	if !errors.Is(err, errLedger) || len(l.known()) != 1 {
		t.Errorf("read %q, %v", l.known(), err)
	}
	l.NoteStopped([]string{"app:1"}, 3*time.Hour)
	if err := errors.Join(l.Save(3*time.Hour), l.SaveEnd(3*time.Hour)); err != nil {
		t.Error(err)
	}
	equal(t, "after a look", files(), before)
	if _, err := OpenLedger(path, "boot", 3*time.Hour); !errors.Is(err, errLedger) {
		t.Errorf("opened: %v", err)
	}
	equal(t, "opened", files(), []string{"ledger.json.damaged", "ledger.json.lock", "ledger.json.prev", "ledger.json.tmp.bak"})
}

// A save keeps what another process wrote in the meantime. That makes no image older than this ledger
// has seen it.
func TestLedgerMerge(t *testing.T) {
	t.Parallel()
	path := savedLedger(t, time.Hour) // of image 0
	open := func(now time.Duration) *Ledger {
		l, err := OpenLedger(path, "boot", now)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ours, theirs := open(2*time.Hour), open(2*time.Hour)
	ours.note([]cri.Image{image(1, 1), image(2, 1)}, usedOnly(), 3*time.Hour) // image 0 disappeared, 1 and 2 are new
	pinned := image(3, 1)
	pinned.Pinned = true
	theirs.note([]cri.Image{image(0, 1), image(1, 1), pinned}, usedOnly(image(1, 1)), 4*time.Hour)
	theirs.noteRemoving(image(1, 1).ID)
	theirs.NoteStopped([]string{"app:1"}, 4*time.Hour)
	if err := errors.Join(theirs.Save(4*time.Hour), ours.Save(5*time.Hour)); err != nil {
		t.Fatal(err)
	}
	known := []string{cri.TrimID(image(1, 1).ID), cri.TrimID(image(2, 1).ID), cri.TrimID(pinned.ID)}
	slices.Sort(known)
	for name, l := range map[string]*Ledger{"in memory": ours, "in the file": open(6 * time.Hour)} {
		equal(t, name, l.known(), known)
		if h := l.history(image(1, 1).ID, 6*time.Hour); h.age != 3*time.Hour || !h.used || h.unused != 2*time.Hour || !h.removing {
			t.Errorf("%s: of both: %+v", name, h)
		}
		if h := l.history(pinned.ID, 6*time.Hour); h.age != 2*time.Hour || !h.pinned {
			t.Errorf("%s: of the other: %+v", name, h)
		}
		if l.stopped["app:1"] != 4*time.Hour {
			t.Errorf("%s: stops %v", name, l.stopped)
		}
	}
	other, err := OpenLedger(path, "another boot", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	theirs.note([]cri.Image{image(9, 1)}, usedOnly(), 7*time.Hour)
	other.note(nil, usedOnly(), 2*time.Minute)
	if err := errors.Join(theirs.Save(7*time.Hour), other.Save(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(other.known(), cri.TrimID(image(9, 1).ID)) {
		t.Error("the times of another boot were taken over")
	}
}
