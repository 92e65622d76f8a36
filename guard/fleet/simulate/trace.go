package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
)

// Limits of a trace.
const (
	maxLine  = 16 << 20                   // bytes of a line: a hundred thousand requests fit
	maxCount = 1_000_000                  // members of a zone
	maxAt    = 100 * 365 * 24 * time.Hour // sums with slots do not overflow
)

// Line is one line of a trace. A zone that Members or Wanting leaves out keeps its last count.
type Line struct {
	At       api.Duration   `json:"at"`                 // since the start of the trace
	Members  map[string]int `json:"members,omitempty"`  // by zone
	Wanting  map[string]int `json:"wanting,omitempty"`  // members that want a soft stop, by zone
	Requests []Request      `json:"requests,omitempty"` // new requests; each stays until it is granted, withdrawn or out of patience
	Withdraw []string       `json:"withdraw,omitempty"` // nodes that need no permit any more
}

// Request is a request for a permit. A node has at most one.
type Request struct {
	Node     string `json:"node"`           // name of the node
	Zone     string `json:"zone,omitempty"` // empty if the fleet is one zone
	Workload string `json:"workload"`       // of the pod to stop, as namespace/name
}

// Reader reads a trace line by line.
type Reader struct {
	sc    *bufio.Scanner
	line  int
	begun bool // a line was read
	last  api.Duration
}

// NewReader reads a trace from r.
func NewReader(r io.Reader) *Reader {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{sc: sc}
}

// Next returns the next line, or io.EOF after the last one. It skips empty lines. The error for a bad line contains the
// line's number.
func (t *Reader) Next() (Line, error) {
	for t.sc.Scan() {
		t.line++
		b := bytes.TrimSpace(t.sc.Bytes())
		if len(b) == 0 {
			continue
		}
		l, err := parseLine(b)
		if err != nil && !t.begun {
			return Line{}, t.wrap(t.notATrace(err))
		}
		t.begun = true
		if err == nil && l.At < t.last {
			err = fmt.Errorf("at %s: earlier than the line before (%s)", l.At, t.last)
		}
		if err != nil {
			return Line{}, t.wrap(err)
		}
		t.last = l.At
		return l, nil
	}
	if err := t.sc.Err(); err != nil {
		t.line++
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d MiB", maxLine>>20)
		}
		return Line{}, t.wrap(err)
	}
	return Line{}, io.EOF
}

// notATrace returns an error that says what the file is, if it is something else that criguard prints.
func (t *Reader) notATrace(err error) error {
	if kind := api.Recognize(t.sc); kind != "" && kind != api.IsFleetTrace {
		return fmt.Errorf("this is %s, not the trace of a fleet, which has one JSON value per line", kind)
	}
	return err
}

// wrap adds the number of the last line to an error.
func (t *Reader) wrap(err error) error { return fmt.Errorf("trace line %d: %w", t.line, err) }

func parseLine(b []byte) (Line, error) {
	var l struct {
		Line
		At *api.Duration `json:"at"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return Line{}, api.WrongType(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Line{}, errors.New("more than one JSON value")
	}
	switch {
	case l.At == nil:
		return Line{}, errors.New(`"at" is missing: the time since the start, such as "30s"`)
	case *l.At < 0:
		return Line{}, errors.New(`"at" is negative`)
	case time.Duration(*l.At) > maxAt:
		return Line{}, fmt.Errorf("at %s: more than a hundred years", *l.At)
	}
	l.Line.At = *l.At
	return l.Line, errors.Join(checkCounts("members", l.Members), checkCounts("wanting", l.Wanting), l.checkNames())
}

func checkCounts(field string, counts map[string]int) error {
	for zone, n := range counts {
		if !validZone(zone) {
			return fmt.Errorf("%s: zone %q: want a name of a-z, 0-9, dots and hyphens", field, zone)
		}
		if n < 0 || n > maxCount {
			return fmt.Errorf("%s: zone %q has %d: want 0 to %d", field, zone, n, maxCount)
		}
	}
	return nil
}

func (l *Line) checkNames() error {
	for i, r := range l.Requests {
		switch {
		case !fleet.ValidName(r.Node):
			return fmt.Errorf("requests[%d]: node %q: want a name of a-z, 0-9, dots and hyphens", i, r.Node)
		case !validZone(r.Zone):
			return fmt.Errorf("requests[%d]: zone %q: want a name of a-z, 0-9, dots and hyphens", i, r.Zone)
		case r.Workload == "":
			return fmt.Errorf("requests[%d]: workload is missing", i)
		}
	}
	for i, node := range l.Withdraw {
		if !fleet.ValidName(node) {
			return fmt.Errorf("withdraw[%d]: node %q: want a name of a-z, 0-9, dots and hyphens", i, node)
		}
	}
	return nil
}

// validZone reports whether a name is that of a zone. A fleet that is one zone needs no name for it.
func validZone(name string) bool { return name == "" || fleet.ValidName(name) }
