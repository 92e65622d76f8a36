package guard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/criguard/criguard/policy"
)

// A trace is a node's story, one JSON value per line: what each signal showed,
// which pods ran, which images lay about. `criguard record` writes one,
// `criguard simulate` runs the pass over it.

// TraceLine is one line of a trace. What a line leaves out keeps its last value.
type TraceLine struct {
	At           TraceDuration                      `json:"at"`
	Signals      map[policy.Signal]TraceObservation `json:"signals,omitempty"`
	Pods         []TracePod                         `json:"pods,omitempty"`
	Images       []TraceImage                       `json:"images,omitempty"`
	AfterReclaim map[policy.Signal]TraceObservation `json:"after_reclaim,omitempty"`
	Layout       string                             `json:"layout,omitempty"` // single, dedicated-imagefs, split
}

// TraceObservation is one signal; what is left out keeps its last value.
type TraceObservation struct {
	Available *TraceQuantity `json:"available,omitempty"`
	Capacity  *TraceQuantity `json:"capacity,omitempty"`
}

// TracePod is one pod. A pod that was named before, by UID or else by name,
// keeps what a later line leaves out.
type TracePod struct {
	Name           string            `json:"name"` // namespace/name
	UID            string            `json:"uid,omitempty"`
	QoS            *string           `json:"qos,omitempty"`
	Priority       *int64            `json:"priority,omitempty"`
	MemoryRequest  *TraceQuantity    `json:"memory_request,omitempty"`
	MemoryUsage    *TraceQuantity    `json:"memory_usage,omitempty"`
	SwapUsage      *TraceQuantity    `json:"swap_usage,omitempty"` // of the memory, what is in swap; left out = not known
	StorageRequest *TraceQuantity    `json:"ephemeral_storage_request,omitempty"`
	DiskUsage      *TraceDisk        `json:"disk_usage,omitempty"`
	InodesUsage    *TraceDisk        `json:"inodes_usage,omitempty"`
	PIDs           *int64            `json:"pids,omitempty"`
	Static         *bool             `json:"static,omitempty"`
	Protected      *bool             `json:"protected,omitempty"`
	NoStats        *bool             `json:"no_stats,omitempty"`
	Created        *TraceDuration    `json:"created,omitempty"` // since the start, mostly negative
	GracePeriod    *TraceDuration    `json:"grace_period,omitempty"`
	StorageLimit   *TraceQuantity    `json:"ephemeral_storage_limit,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
}

// TraceDisk splits what a pod uses of the disks, in bytes or inodes.
type TraceDisk struct {
	Rootfs  TraceQuantity `json:"rootfs"`
	Logs    TraceQuantity `json:"logs"`
	Volumes TraceQuantity `json:"volumes"`
	// LogsApart: the logs are on a device of their own.
	LogsApart bool `json:"logs_apart,omitempty"`
}

// TraceImage is one image; old, re-pullable, not pinned and not in use unless it
// says otherwise.
type TraceImage struct {
	ID         string         `json:"id"`
	Name       string         `json:"name,omitempty"`
	Size       TraceQuantity  `json:"size"`
	Pinned     bool           `json:"pinned,omitempty"`
	InUse      bool           `json:"in_use,omitempty"`
	Age        *TraceDuration `json:"age,omitempty"`
	Repullable *bool          `json:"repullable,omitempty"`
}

// TraceQuantity is an amount of bytes, inodes or tasks: a plain number, or a
// string in the kubelet's syntax.
type TraceQuantity int64

// UnmarshalJSON takes a number or a quantity; a percentage is refused.
func (q *TraceQuantity) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '"' {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			f, ferr := strconv.ParseFloat(string(b), 64)
			if ferr != nil || math.IsNaN(f) || f < 0 || f >= math.MaxInt64 {
				return fmt.Errorf("quantity %s: not a whole number", b)
			}
			n = int64(f)
		}
		*q = TraceQuantity(n)
	} else {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		if s == "0" || s == "" {
			*q = 0
			return nil
		}
		v, err := policy.ParseQuantity(s)
		if err != nil {
			return err
		}
		if v.IsPercent() {
			return fmt.Errorf("quantity %q: a trace has amounts, not percentages", s)
		}
		*q = TraceQuantity(v.Of(0))
	}
	if *q < 0 {
		return fmt.Errorf("quantity %s: negative", b)
	}
	return nil
}

// TraceDuration is a duration as a string ("3m0s", "-1h").
type TraceDuration time.Duration

// UnmarshalJSON takes a Go duration as a string.
func (d *TraceDuration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %s: not a string such as \"30s\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: not like \"30s\" or \"5m\"", s)
	}
	*d = TraceDuration(v)
	return nil
}

// MarshalText writes the duration as Go does.
func (d TraceDuration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

// maxTraceLine bounds one line: ten thousand pods fit.
const maxTraceLine = 16 << 20

// TraceReader reads a trace line by line.
type TraceReader struct {
	sc   *bufio.Scanner
	line int
	last TraceDuration
}

// NewTraceReader reads a trace from r.
func NewTraceReader(r io.Reader) *TraceReader {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxTraceLine)
	return &TraceReader{sc: sc}
}

// Next returns the next line; io.EOF after the last. Empty lines are skipped. A
// bad line is an error that carries its number.
func (t *TraceReader) Next() (TraceLine, error) {
	for t.sc.Scan() {
		t.line++
		b := bytes.TrimSpace(t.sc.Bytes())
		if len(b) == 0 {
			continue
		}
		l, err := parseTraceLine(b)
		if err == nil && l.At < t.last {
			err = fmt.Errorf("at %s: earlier than the line before (%s)", time.Duration(l.At), time.Duration(t.last))
		}
		if err != nil {
			return TraceLine{}, fmt.Errorf("trace line %d: %w", t.line, err)
		}
		t.last = l.At
		return l, nil
	}
	if err := t.sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return TraceLine{}, fmt.Errorf("trace line %d: longer than %d MiB", t.line+1, maxTraceLine>>20)
	} else if err != nil {
		return TraceLine{}, fmt.Errorf("trace line %d: %w", t.line+1, err)
	}
	return TraceLine{}, io.EOF
}

func parseTraceLine(b []byte) (TraceLine, error) {
	var l struct {
		TraceLine
		At     *TraceDuration `json:"at"`
		Pods   *[]TracePod    `json:"pods"`
		Images *[]TraceImage  `json:"images"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return TraceLine{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return TraceLine{}, errors.New("more than one JSON value")
	}
	if l.At == nil {
		return TraceLine{}, errors.New(`"at" is missing: the time since the start, such as "30s"`)
	}
	if *l.At < 0 {
		return TraceLine{}, errors.New(`"at" is negative`)
	}
	out := l.TraceLine
	out.At = *l.At
	// A list that is given but empty says that there are none; one that is left
	// out keeps what was.
	if l.Pods != nil {
		out.Pods = append([]TracePod{}, *l.Pods...)
	}
	if l.Images != nil {
		out.Images = append([]TraceImage{}, *l.Images...)
	}
	return out, out.validate()
}

func (l *TraceLine) validate() error {
	if l.Layout != "" {
		if _, err := policy.ParseLayout(l.Layout); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for i := range l.Pods {
		p := &l.Pods[i]
		if p.Name == "" {
			return fmt.Errorf("pods[%d]: name is missing", i)
		}
		if seen[p.key()] {
			return fmt.Errorf("pods[%d] %s: named twice", i, p.key())
		}
		seen[p.key()] = true
		if p.QoS != nil {
			if _, err := policy.ParseQoS(*p.QoS); err != nil {
				return fmt.Errorf("pods[%d] %s: %w", i, p.Name, err)
			}
		}
		if p.PIDs != nil && *p.PIDs < 0 {
			return fmt.Errorf("pods[%d] %s: pids is negative", i, p.Name)
		}
	}
	for i := range l.Images {
		if l.Images[i].ID == "" {
			return fmt.Errorf("images[%d]: id is missing", i)
		}
	}
	return nil
}

// key identifies a pod over the lines of a trace.
func (p *TracePod) key() string {
	if p.UID != "" {
		return p.UID
	}
	return p.Name
}

// over returns p with what it leaves out taken from the earlier line.
func (p TracePod) over(old TracePod) TracePod {
	if p.UID == "" {
		p.UID = old.UID
	}
	keep(&p.QoS, old.QoS)
	keep(&p.Priority, old.Priority)
	keep(&p.MemoryRequest, old.MemoryRequest)
	keep(&p.MemoryUsage, old.MemoryUsage)
	keep(&p.SwapUsage, old.SwapUsage)
	keep(&p.StorageRequest, old.StorageRequest)
	keep(&p.DiskUsage, old.DiskUsage)
	keep(&p.InodesUsage, old.InodesUsage)
	keep(&p.PIDs, old.PIDs)
	keep(&p.Static, old.Static)
	keep(&p.Protected, old.Protected)
	keep(&p.NoStats, old.NoStats)
	keep(&p.Created, old.Created)
	keep(&p.GracePeriod, old.GracePeriod)
	keep(&p.StorageLimit, old.StorageLimit)
	if p.Labels == nil {
		p.Labels = old.Labels
	}
	return p
}

// createdBy tells whether the pod was made at that time or before, as far as it
// says.
func (p *TracePod) createdBy(at TraceDuration) bool { return p.Created == nil || *p.Created <= at }

func keep[T any](p **T, old *T) {
	if *p == nil {
		*p = old
	}
}
