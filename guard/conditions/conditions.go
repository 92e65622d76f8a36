package conditions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// File is the name of the file in the run directory; docs/conditions.md describes it.
const File = "conditions.json"

// Writer keeps the file up to date.
type Writer struct {
	Dir     rundir.Dir
	written bool
	holds   policy.Conditions
	met     []policy.Met
}

// Write replaces the file on the first call, and when a condition or a met threshold appears or disappears. It reports whether
// it did.
func (w *Writer) Write(pr policy.Pressure, now time.Time) (written bool, err error) {
	same := func(a, b policy.Met) bool { return a.Threshold == b.Threshold && a.WarnOnly == b.WarnOnly }
	if w.written && pr.Conditions == w.holds && slices.EqualFunc(pr.Met, w.met, same) {
		return false, nil
	}
	c := api.Conditions{APIVersion: api.APIVersion, Time: now, Conditions: pr.Conditions, Met: []string{}, Reasons: map[string]string{}}
	for _, m := range pr.Met {
		name, cond := m.Threshold.String(), m.Signal.Condition().String()
		c.Met = append(c.Met, name)
		if m.WarnOnly {
			continue // a warn-only threshold raises no condition
		}
		if c.Reasons[cond] != "" {
			name = c.Reasons[cond] + ", " + name
		}
		c.Reasons[cond] = name
	}
	if err := rundir.Save(w.Dir, File, rundir.ForAll(), c, !rundir.Synced); err != nil {
		return false, err // the next pass retries
	}
	w.written, w.holds, w.met = true, pr.Conditions, pr.Met
	return true, nil
}

// Restore makes the next Write replace the file in any case.
func (w *Writer) Restore() { w.written = false }

// Remove deletes the file: once the service has ended, the conditions are unknown.
func (w *Writer) Remove() error {
	if err := os.Remove(w.Dir.Path(File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove conditions: %w", err)
	}
	return nil
}
