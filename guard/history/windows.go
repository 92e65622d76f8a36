package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// Limits of a window around a stop: it covers windowReach before and after the stop, with one sample per
// second and up to windowDense more on either side of the stop. A window takes at most 36 KiB, so all of
// them take at most 576 KiB.
const (
	windowReach = time.Minute
	windowDense = 100
	maxWindows  = 16
)

// WindowDir is the subdirectory of the history directory with one file per window.
const WindowDir = "stops"

func limitsOf(ts []policy.Threshold, capacity *[policy.SignalCount]int64) []api.Limit {
	limits := make([]api.Limit, 0, len(ts))
	for _, t := range ts {
		limits = append(limits, api.Limit{Signal: t.Signal, Kind: t.Kind, Amount: t.Value.Of(capacity[t.Signal])})
	}
	return limits
}

// openWindow is a window whose minute after the stop has not ended.
type openWindow struct {
	api.Window
	capacity [policy.SignalCount]int64
	samples  []reading
	after    int // number of samples taken after the stop
}

// windows holds the windows of the last stops in memory, oldest first. Each finished window also has a file.
type windows struct {
	done   []api.Window
	opened []*openWindow
	news   backlog  // of done
	gone   []uint64 // passes whose files have to be removed
}

// openWindows loads the windows that an earlier run left in dir, and ignores unreadable files.
func openWindows(dir string, readers rundir.Access) *windows {
	w := &windows{}
	entries, _ := os.ReadDir(dir) // an error means that there are no old windows
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		if one, err := rundir.Load(rundir.Dir(dir), e.Name(), readers, parseWindow); err == nil && e.Name() == windowFile(one.Pass) {
			w.done = append(w.done, one)
		}
	}
	slices.SortFunc(w.done, func(a, b api.Window) int { return cmp.Compare(a.Pass, b.Pass) })
	w.bound()
	return w
}

func windowFile(pass uint64) string { return fmt.Sprintf("stop-%d.json", pass) }

// parseWindow parses one window. It returns an error if a column and the times differ in length.
func parseWindow(b []byte) (w api.Window, err error) {
	if err := json.Unmarshal(b, &w); err != nil {
		return w, fmt.Errorf("parse window: %w", err)
	}
	for s, column := range w.Available {
		if len(column) != len(w.At) {
			return w, fmt.Errorf("parse window: %s has %d values at %d times", s, len(column), len(w.At))
		}
	}
	return w, nil
}

// open starts a window with the samples before the stop.
func (w *windows) open(p *api.Pass, before []reading, capacity [policy.SignalCount]int64, limits []api.Limit) {
	w.opened = append(w.opened, &openWindow{
		Window:   api.Window{Pass: p.ID, Time: p.Time, StopAt: p.At, Limits: limits},
		capacity: capacity, samples: before,
	})
	if len(w.opened) > maxWindows {
		w.finish(w.opened[0])
		w.opened = w.opened[1:]
	}
}

// add adds a sample to every open window and finishes those that are complete. It reports whether it
// finished any.
func (w *windows) add(s reading) (through bool) {
	if len(w.opened) == 0 {
		return false
	}
	w.opened = slices.DeleteFunc(w.opened, func(o *openWindow) bool {
		if s.at > time.Duration(o.StopAt)+windowReach {
			w.finish(o)
			through = true
			return true
		}
		if o.after < windowDense || s.at-o.samples[len(o.samples)-1].at >= calmEvery {
			o.samples = append(o.samples, s)
			o.after++
		}
		return false
	})
	return through
}

// now returns the window with the samples so far.
func (o *openWindow) now() api.Window {
	o.Series = seriesOf(o.samples, &o.capacity)
	return o.Window
}

// finish stores a complete window.
func (w *windows) finish(o *openWindow) {
	w.done = append(w.done, o.now())
	w.news.added++
	w.bound()
}

// bound drops the oldest windows beyond maxWindows.
func (w *windows) bound() {
	for len(w.done) > maxWindows {
		w.gone = append(w.gone, w.done[0].Pass)
		w.done = append(w.done[:0], w.done[1:]...)
	}
}

// saveWindows writes a file in dir for each new window and removes the files of dropped windows.
func saveWindows(dir string, readers rundir.Access, news []api.Window, gone []uint64) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create directory of windows: %w", err)
	}
	for i := range news {
		if err := rundir.Save(rundir.Dir(dir), windowFile(news[i].Pass), readers, &news[i], rundir.Synced); err != nil {
			return err
		}
	}
	for _, pass := range gone {
		if err := os.Remove(filepath.Join(dir, windowFile(pass))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove window: %w", err)
		}
	}
	return nil
}

// list returns all windows, including the open ones as they are now.
func (w *windows) list() []api.Window {
	all := append([]api.Window{}, w.done...) // in JSON, a list even if it is empty
	for _, o := range w.opened {
		all = append(all, o.now())
	}
	return all
}

// close finishes every open window.
func (w *windows) close() {
	for _, o := range w.opened {
		w.finish(o)
	}
	w.opened = nil
}
