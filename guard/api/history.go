package api

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// HistoryList is the history in its JSON form.
type HistoryList struct {
	APIVersion string `json:"apiVersion"`
	Passes     []Pass `json:"passes"`         // oldest first
	Note       string `json:"note,omitempty"` // where the passes come from, or why some are missing
}

// HistoryQuery selects passes. The zero value selects all stored passes.
type HistoryQuery struct {
	N     int       // newest N of the selected passes; 0 = all
	Since time.Time // no passes before this time
	From  uint64    // no passes with a lower ID
}

// Selects reports whether the query selects a pass with this ID and time. It does not apply N.
func (q HistoryQuery) Selects(id uint64, at time.Time) bool {
	return id >= q.From && !at.Before(q.Since)
}

// Series is a time series of signals, in columns.
type Series struct {
	At []Duration `json:"at"` // since boot
	// The amount of each signal at these times: bytes, inodes, tasks, or millionths for stalls;
	// −1 if it was not read.
	Available map[policy.Signal][]int64 `json:"available" unit:"signal"`
	Capacity  map[policy.Signal]int64   `json:"capacity" unit:"signal"` // of each signal
}

// SampleList is the list of samples in its JSON form.
type SampleList struct {
	APIVersion string    `json:"apiVersion"`
	Time       time.Time `json:"time"` // now, wall clock
	Now        Duration  `json:"now"`  // now, since boot
	Series
}

// WindowList is the list of windows around stops in its JSON form.
type WindowList struct {
	APIVersion string   `json:"apiVersion"`
	Windows    []Window `json:"windows"` // oldest first
}

// Window is the signals around one stop.
type Window struct {
	Pass   uint64    `json:"pass"`       // ID of the pass that began the stop
	Time   time.Time `json:"time"`       // of the stop, wall clock
	StopAt Duration  `json:"stop_at"`    // since boot
	Limits []Limit   `json:"thresholds"` // thresholds in force
	Series
}

// Limit is a threshold in force, as an absolute amount on this node.
type Limit struct {
	Signal policy.Signal `json:"signal"`               // its signal
	Kind   policy.Kind   `json:"kind"`                 // hard or soft
	Amount int64         `json:"amount" unit:"signal"` // less than this is a shortage
}
