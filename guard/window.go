package guard

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

	"github.com/criguard/criguard/policy"
)

// What is kept around a stop: windowReach before and after it, one sample a second,
// and windowDense more on either side, next to it. One window is 36 KiB at most, so
// that all of them are 576 KiB.
const (
	windowReach = time.Minute
	windowDense = 100
	maxWindows  = 16
)

// windowDir is the directory, in the history's, with one file for each window.
const windowDir = "stops"

// maxWindowFile bounds a file that is read back.
const maxWindowFile = 1 << 20

// Window is the signals around one stop.
type Window struct {
	Pass   uint64        `json:"pass"` // that began the stop
	Time   time.Time     `json:"time"`
	StopAt time.Duration `json:"stop_at"` // since boot, in nanoseconds
	Limits []Limit       `json:"thresholds"`
	Series
}

// Limit is a threshold in force, as the amount that it was on this node.
type Limit struct {
	Signal policy.Signal `json:"signal"`
	Kind   policy.Kind   `json:"kind"`
	Amount int64         `json:"amount"`
}

func limitsOf(ts []policy.Threshold, capacity *[policy.SignalCount]int64) []Limit {
	limits := make([]Limit, 0, len(ts))
	for _, t := range ts {
		limits = append(limits, Limit{t.Signal, t.Kind, t.Value.Of(capacity[t.Signal])})
	}
	return limits
}

// openWindow is a window whose minute after the stop runs.
type openWindow struct {
	Window
	capacity [policy.SignalCount]int64
	samples  []reading
	after    int // samples taken after the stop
}

// windows are those of the last stops, oldest first, in memory. Those that are through have
// a file each.
type windows struct {
	done   []Window
	opened []*openWindow
	news   backlog  // of done
	gone   []uint64 // whose files are to be removed
}

// openWindows reads what an earlier run left in dir. What cannot be read is left out.
func openWindows(dir string) *windows {
	w := &windows{}
	entries, _ := os.ReadDir(dir) // none = nothing was left
	for _, e := range entries {
		if one, err := readWindow(filepath.Join(dir, e.Name())); err == nil && e.Name() == windowFile(one.Pass) {
			w.done = append(w.done, one)
		}
	}
	slices.SortFunc(w.done, func(a, b Window) int { return cmp.Compare(a.Pass, b.Pass) })
	w.bound()
	return w
}

func windowFile(pass uint64) string { return fmt.Sprintf("stop-%d.json", pass) }

func readWindow(path string) (Window, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Window{}, fmt.Errorf("read window: %w", err)
	}
	if info.Size() > maxWindowFile || !strings.HasSuffix(path, ".json") {
		return Window{}, errors.New("read window: not one of ours")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Window{}, fmt.Errorf("read window: %w", err)
	}
	return parseWindow(b)
}

// parseWindow reads one window. A column that is shorter than the time is an error.
func parseWindow(b []byte) (w Window, err error) {
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

// open begins a window with the samples before the stop.
func (w *windows) open(p *Pass, before []reading, capacity [policy.SignalCount]int64, limits []Limit) {
	w.opened = append(w.opened, &openWindow{
		Window:   Window{Pass: p.ID, Time: p.Time, StopAt: p.At, Limits: limits},
		capacity: capacity, samples: before,
	})
	if len(w.opened) > maxWindows {
		w.finish(w.opened[0])
		w.opened = w.opened[1:]
	}
}

// add takes a sample into every window that is open, and ends those whose time is up: true
// when there were some.
func (w *windows) add(s reading) (through bool) {
	if len(w.opened) == 0 {
		return false
	}
	w.opened = slices.DeleteFunc(w.opened, func(o *openWindow) bool {
		if s.at > o.StopAt+windowReach {
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

// now is the window as it is by now.
func (o *openWindow) now() Window {
	o.Series = seriesOf(o.samples, &o.capacity)
	return o.Window
}

// finish keeps a window whose time is up.
func (w *windows) finish(o *openWindow) {
	w.done = append(w.done, o.now())
	w.news.added++
	w.bound()
}

// bound drops the oldest windows above the number that is kept.
func (w *windows) bound() {
	for len(w.done) > maxWindows {
		w.gone = append(w.gone, w.done[0].Pass)
		w.done = append(w.done[:0], w.done[1:]...)
	}
}

// saveWindows writes a file for each of the new windows in dir and removes those of windows
// that are gone.
func saveWindows(dir string, news []Window, gone []uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create directory of windows: %w", err)
	}
	for i := range news {
		b, err := json.Marshal(&news[i])
		if err != nil {
			return fmt.Errorf("encode window: %w", err)
		}
		if err := replaceFile(dir, windowFile(news[i].Pass), append(b, '\n'), synced); err != nil {
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

// list copies what there is, those still open as they are.
func (w *windows) list() []Window {
	all := slices.Clone(w.done)
	for _, o := range w.opened {
		all = append(all, o.now())
	}
	return all
}

// close ends every window that is open.
func (w *windows) close() {
	for _, o := range w.opened {
		w.finish(o)
	}
	w.opened = nil
}
