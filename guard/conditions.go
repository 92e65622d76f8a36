package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// conditionsFile is where other programs on the node read the conditions.
const conditionsFile = "conditions.json"

// Conditions is the content of the conditions file, on one line. docs/conditions.md
// tells of it.
type Conditions struct {
	APIVersion string            `json:"apiVersion"`
	Time       time.Time         `json:"time"` // since when it is so
	Conditions map[string]bool   `json:"conditions"`
	Met        []string          `json:"met"`
	Reasons    map[string]string `json:"reasons,omitempty"` // thresholds, by condition
}

// conditionsWriter keeps the conditions file as the conditions are.
type conditionsWriter struct {
	dir     RunDir
	written bool
	holds   policy.Conditions
	met     []policy.Met
}

// write replaces the file when a condition or a met threshold has come or gone, and
// the first time.
func (w *conditionsWriter) write(pr policy.Pressure, now time.Time) error {
	same := func(a, b policy.Met) bool { return a.Threshold == b.Threshold && a.WarnOnly == b.WarnOnly }
	if w.written && pr.Conditions == w.holds && slices.EqualFunc(pr.Met, w.met, same) {
		return nil
	}
	c := Conditions{APIVersion: APIVersion, Time: now, Conditions: map[string]bool{}, Met: []string{}, Reasons: map[string]string{}}
	for _, cond := range policy.AllConditions() {
		c.Conditions[cond.String()] = pr.Conditions.Has(cond)
	}
	for _, m := range pr.Met {
		name, cond := m.Threshold.String(), m.Signal.Condition().String()
		c.Met = append(c.Met, name)
		if m.WarnOnly {
			continue // raises no condition
		}
		if c.Reasons[cond] != "" {
			name = c.Reasons[cond] + ", " + name
		}
		c.Reasons[cond] = name
	}
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	if err := w.dir.writeFile(conditionsFile, append(b, '\n')); err != nil {
		return err // the next pass tries again
	}
	w.written, w.holds, w.met = true, pr.Conditions, pr.Met
	return nil
}

// remove takes the file away: nobody knows the conditions any more.
func (w *conditionsWriter) remove() error {
	if err := os.Remove(w.dir.path(conditionsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove conditions: %w", err)
	}
	return nil
}
