package reclaim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

// A call that blocks costs its callers one wait, and no other call begins meanwhile.
func TestWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w worker
		release, ran := make(chan struct{}), 0
		started := time.Now()
		took := func() time.Duration { d := time.Since(started); started = time.Now(); return d }
		if err := w.do(t.Context(), time.Second, func() { <-release }); !errors.Is(err, ErrStalled) || took() != time.Second {
			t.Errorf("a call that blocks: %v", err)
		}
		for range 3 {
			if err := w.do(t.Context(), time.Second, func() { ran++ }); !errors.Is(err, ErrStalled) || took() != 0 {
				t.Errorf("beside it: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.do(ctx, time.Hour, func() { ran++ }); !errors.Is(err, context.DeadlineExceeded) || took() != time.Second {
			t.Errorf("a caller that gives up: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(release) })
		if err := w.do(t.Context(), time.Hour, func() { ran++ }); err != nil || took() != time.Second || ran != 1 {
			t.Errorf("after it: %v, %d calls ran", err, ran)
		}
		if n, err := call(t.Context(), &w, time.Second, func() (int, error) { return 7, errBoom }); n != 7 || !errors.Is(err, errBoom) {
			t.Errorf("what it returns: %d, %v", n, err)
		}
	})
}

// If the disk of the air-gap files stalls, all images are kept until the files have been read once.
// After that, the last read counts. Both end when the disk is back.
func TestAirGapDirectoryStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "list.txt"), images[0].Tags[0])
		p := anyImage
		p.DryRun, p.Images.AirGapDirs = true, []string{dir, filepath.Join(dir, "none")}
		release := make(chan struct{})
		w.airgap.dir(dir).reader.begin(func() { <-release })
		began := time.Now()
		for range 2 {
			r := w.Collect(t.Context(), p)[0]
			if len(r.Removed) != 0 || why(r.Kept, images[1].ID) != "air-gap directory "+dir+" does not answer" || len(r.Notes) != 1 || !r.Unread {
				t.Errorf("never read: %+v", r)
			}
		}
		if took := time.Since(began); took != airGapWait {
			t.Errorf("waited %s", took)
		}
		close(release)
		synctest.Wait()
		equal(t, "read", ids(w.Collect(t.Context(), p)[0].Removed), []string{images[1].ID})
		release = make(chan struct{})
		w.airgap.dir(dir).reader.begin(func() { <-release })
		r := w.Collect(t.Context(), p)[0]
		equal(t, "as read before", ids(r.Removed), []string{images[1].ID})
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], ErrStalled.Error()) || r.Unread {
			t.Errorf("notes: %q", r.Notes)
		}
		close(release)
		synctest.Wait()
	})
}

// If the disk of the log directory stalls, only the log step fails, not the containers or the images.
func TestLogDirectoryStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{Logs: logsIn(filepath.Join(t.TempDir(), "pods"))})
		w.withDead(3, 10)
		images := w.withImages(t, 1, 10)
		release := make(chan struct{})
		w.files.begin(func() { <-release })
		began := time.Now()
		p := anyContainer
		p.Steps, p.Images = []Step{StepContainers, StepLogs, StepImages}, ImagePolicy{Prune: PruneAuto}
		reports := w.Collect(t.Context(), p)
		equal(t, "containers", ids(reports[0].Removed), []string{"a", "b", "c"})
		if logs := reports[1]; !errors.Is(logs.Err(), ErrStalled) {
			t.Errorf("logs: %+v", logs)
		}
		equal(t, "images", ids(reports[2].Removed), []string{images[0].ID})
		if took := time.Since(began); took > logsWait+settleAtMost {
			t.Errorf("took %s", took)
		}
		close(release)
		synctest.Wait()
	})
}

// A log that could not be removed with its container is removed by the next run, unless it may be another container's by now. So is
// that of a container whose removal took effect although the runtime gave no answer.
func TestLogsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := newWorld(Options{Logs: logsIn(dir)})
		w.withDead(4, 10)
		log := func(attempt string) string { return filepath.Join(dir, "default_p_p", "c", attempt+".log") }
		for i, id := range []string{"a", "b", "c", "d"} {
			n := strconv.Itoa(i)
			write(t, log(n), 1, epoch)
			w.rt.details[id] = cri.ContainerDetail{LogPath: log(n)}
		}
		w.rt.faults["RemoveContainer a"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.containers = slices.DeleteFunc(w.rt.containers, func(c cri.Container) bool { return c.ID == "a" })
			return true, cri.ErrTimeout
		}
		w.rt.faults["RemoveContainer d"] = refuse
		release := make(chan struct{})
		w.files.begin(func() { <-release })
		w.Collect(t.Context(), anyContainer)
		left := func(want ...string) {
			t.Helper()
			entries, err := os.ReadDir(filepath.Dir(log("0")))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			equal(t, "logs", names, want)
		}
		left("0.log", "1.log", "2.log", "3.log")
		again := container("again", "p", "c", epoch)
		again.Attempt, again.State = 2, cri.Running
		w.rt.containers = append(w.rt.containers, again)
		w.Collect(t.Context(), anyContainer) // the disk still stalls
		left("0.log", "1.log", "2.log", "3.log")
		close(release)
		synctest.Wait()
		p := anyContainer
		p.DryRun = true
		w.Collect(t.Context(), p)
		left("0.log", "1.log", "2.log", "3.log")
		w.Collect(t.Context(), anyContainer)
		left("2.log", "3.log")
		w.rt.containers = slices.DeleteFunc(w.rt.containers, func(c cri.Container) bool { return c.ID == "again" })
		w.Collect(t.Context(), anyContainer)
		left("2.log", "3.log")
	})
}

// The removal of a container's log waits for a disk that stalls neither for long nor beyond its context.
func TestLogRemoverStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		log := filepath.Join(dir, "d_p_u", "c", "0.log")
		write(t, log, 1, epoch)
		d := cri.ContainerDetail{LogPath: log}
		d.Name = "c"
		r := LogRemover{Logs: logsIn(dir)}
		release := make(chan struct{})
		r.files.begin(func() { <-release })
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		began := time.Now()
		if err := r.Remove(ctx, d); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := r.Remove(t.Context(), d); !errors.Is(err, ErrStalled) || time.Since(began) != logsWait {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(release)
		synctest.Wait()
		if err := r.Remove(t.Context(), d); err != nil || exists(log) {
			t.Errorf("once the disk answers: %v, the log is there: %t", err, exists(log))
		}
	})
}

// If the disk of the ledger does not answer at the start, the service starts with an empty one, and saves it when
// the disk is back.
func TestLedgerStallsAtStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	// Opening a pipe for reading waits for a writer, like a read waits for a disk.
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLedger(path, "boot", time.Hour)
	if !errors.Is(err, ErrStalled) {
		t.Fatalf("opened with %v", err)
	}
	end, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(end.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	l.NoteStopped([]string{"app:1"}, 2*time.Hour)
	for deadline := time.Now().Add(time.Minute); l.Save(2*time.Hour) != nil || l.Unsaved() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not saved: %v", l.Unsaved())
		}
	}
	if l, err = ReadLedger(path, "boot", 3*time.Hour); err != nil || len(l.stopped) != 1 {
		t.Errorf("saved %+v, %v", l.stopped, err)
	}
}

// If the disk of the ledger stalls, no removal waits for long, the error is returned once, and the file
// has everything when the disk is back.
func TestLedgerStalls(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := OpenLedger(path, "boot", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// Opening a pipe for writing waits for a reader, like a write waits for a disk.
	if err := syscall.Mkfifo(path+".tmp", 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(Options{Ledger: l})
	for i := range 3 {
		w.rt.images = append(w.rt.images, image(i, 10))
	}
	collected := make(chan []Report)
	go func() {
		p := anyImage
		_ = w.Notice(t.Context())
		w.clock.add(time.Hour)
		collected <- w.Collect(t.Context(), p)
	}()
	select {
	case reports := <-collected:
		if len(reports[0].Removed) != 3 {
			t.Errorf("report: %+v", reports[0])
		}
	case <-time.After(time.Minute):
		t.Fatal("the collection hangs")
	}
	if err := l.Unsaved(); !errors.Is(err, ErrStalled) {
		t.Errorf("the stall is reported as %v", err)
	}
	l.NoteStopped([]string{"app:1"}, 2*time.Hour)
	fd, err := syscall.Open(path+".tmp", syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_ = l.SaveDue(2 * time.Hour) // a pipe cannot be synced: the write fails, and the next one creates a file
		if s, err := readLedger(path); err == nil && s.Stopped["app:1"] == 2*time.Hour {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not saved once the disk answers: %v", l.Unsaved())
		}
	}
	if err := l.Unsaved(); err != nil {
		t.Errorf("told of still: %v", err)
	}
}

// A run that has enough begins no further removal and does not wait for its turn.
func TestCollectHasEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{})
		w.withImages(t, 3, 10)
		enough := make(chan struct{})
		release := make(chan struct{})
		w.rt.faults["RemoveImage"] = func(context.Context) (bool, error) { <-release; return false, nil }
		p := anyImage
		p.Enough = enough
		first, second := make(chan []Report, 1), make(chan []Report, 1)
		go func() { first <- w.Collect(t.Context(), p) }()
		synctest.Wait()
		go func() { second <- w.Collect(t.Context(), p) }()
		synctest.Wait()
		close(enough)
		synctest.Wait()
		if got := <-second; got != nil {
			t.Errorf("the one that waited: %+v", got)
		}
		close(release)
		if got := <-first; len(got[0].Removed) != 1 || len(w.rt.called("RemoveImage")) != 1 {
			t.Errorf("the one that ran: %+v", got)
		}
	})
}
