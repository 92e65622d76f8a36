package trace

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

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Line is one line of a trace. A field that a line leaves out keeps its last value.
type Line struct {
	At           api.Duration                  `json:"at"`                      // since the start of the trace
	Signals      map[policy.Signal]Observation `json:"signals,omitempty"`       // by name
	Pods         []Pod                         `json:"pods,omitempty"`          // all running pods
	Images       []Image                       `json:"images,omitempty"`        // all images
	AfterReclaim map[policy.Signal]Observation `json:"after_reclaim,omitempty"` // what is available after a reclaim at this time
	Layout       string                        `json:"layout,omitempty"`        // single, dedicated-imagefs, split, dedicated-containerfs, separate
	// This line and the later ones are readings of a node that the simulation did not
	// change: a pod that the simulation stopped may still run there.
	Recorded    bool      `json:"recorded,omitempty"`
	Began       time.Time `json:"began,omitzero"`         // wall clock at the start of the trace, for people
	EndedPods   []string  `json:"ended_pods,omitempty"`   // UIDs, or else names, of pods that have ended; they end before changed_pods change
	ChangedPods []Pod     `json:"changed_pods,omitempty"` // pods that have started or changed; the others keep running as they were
}

// Observation is one signal. A field that is left out keeps its last value.
type Observation struct {
	Available *Quantity `json:"available,omitempty" unit:"signal"` // now
	Capacity  *Quantity `json:"capacity,omitempty" unit:"signal"`  // total
}

// Pod is one pod, identified by its UID or else by its name. A field that a later line leaves out keeps its
// value.
type Pod struct {
	id             string            // set by a Reader, see Key
	Name           string            `json:"name,omitempty"`                                   // namespace/name
	UID            string            `json:"uid,omitempty"`                                    // of the pod
	QoS            *string           `json:"qos,omitempty"`                                    // Guaranteed, Burstable, BestEffort or Unknown
	Priority       *int64            `json:"priority,omitempty" unit:"-"`                      // of the pod
	MemoryRequest  *Quantity         `json:"memory_request,omitempty" unit:"bytes"`            // sum of its containers
	MemoryUsage    *Quantity         `json:"memory_usage,omitempty" unit:"bytes"`              // working set
	MemoryFile     *Quantity         `json:"memory_file,omitempty" unit:"bytes"`               // the part of memory_usage that is page cache in active use, dentries or inodes
	SwapUsage      *Quantity         `json:"swap_usage,omitempty" unit:"bytes"`                // in swap; left out = not known
	StorageRequest *Quantity         `json:"ephemeral_storage_request,omitempty" unit:"bytes"` // sum of its containers
	DiskUsage      *Disk             `json:"disk_usage,omitempty"`                             // in bytes
	InodesUsage    *Disk             `json:"inodes_usage,omitempty"`                           // in inodes
	PIDs           *int64            `json:"pids,omitempty" unit:"tasks"`                      // tasks
	Static         *bool             `json:"static,omitempty"`                                 // the kubelet runs it from a file
	Protected      *bool             `json:"protected,omitempty"`                              // it is never stopped
	NoStats        *bool             `json:"no_stats,omitempty"`                               // its usage is unknown
	Created        *api.Duration     `json:"created,omitempty"`                                // since the start of the trace, mostly negative
	GracePeriod    *api.Duration     `json:"grace_period,omitempty"`                           // its own grace period
	StorageLimit   *Quantity         `json:"ephemeral_storage_limit,omitempty" unit:"bytes"`   // sum of its containers
	Labels         map[string]string `json:"labels,omitempty"`                                 // of the pod
	Annotations    map[string]string `json:"annotations,omitempty"`                            // those that say what rules say, see [annotations]
}

// Disk is a pod's usage of the disks, in bytes or inodes.
type Disk struct {
	Rootfs  Quantity `json:"rootfs" unit:"bytes or inodes"`  // writable layers
	Logs    Quantity `json:"logs" unit:"bytes or inodes"`    // container logs
	Volumes Quantity `json:"volumes" unit:"bytes or inodes"` // local volumes
	policy.LogsPlace
}

// Image is one image. By default, it is old, re-pullable, not pinned and not in use.
type Image struct {
	ID         string        `json:"id"`                   // in the runtime
	Name       string        `json:"name,omitempty"`       // a tag
	Size       Quantity      `json:"size" unit:"bytes"`    // as listed
	Pinned     bool          `json:"pinned,omitempty"`     // the runtime keeps it
	InUse      bool          `json:"in_use,omitempty"`     // a container uses it
	Age        *api.Duration `json:"age,omitempty"`        // since it was first seen
	Repullable *bool         `json:"repullable,omitempty"` // it can be pulled again
}

// Quantity is an amount of bytes, inodes or tasks. In JSON, it is a plain number or a string in the
// kubelet's syntax.
type Quantity int64

// UnmarshalJSON accepts a number or a quantity string. It rejects percentages and negative amounts.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '"' {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			f, ferr := strconv.ParseFloat(string(b), 64)
			if ferr != nil || math.IsNaN(f) || f < 0 || f >= math.MaxInt64 {
				return fmt.Errorf("quantity %s: not a whole number", b)
			}
			n = int64(f)
		}
		*q = Quantity(n)
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
		*q = Quantity(v.Of(0))
	}
	if *q < 0 {
		return fmt.Errorf("quantity %s: negative", b)
	}
	return nil
}

// maxLine is the maximum length of a line in bytes: ten thousand pods fit.
const maxLine = 16 << 20

// Reader reads a trace line by line.
type Reader struct {
	sc      *bufio.Scanner
	line    int
	begun   bool // a line was read
	last    api.Duration
	signals map[policy.Signal]Observation
	uids    map[string]string // a pod's key by its UID
	names   map[string]named  // the pod that last had a name
}

// named is a pod by its name. A pod without a UID may get one in a later line.
type named struct{ key, uid string }

// NewReader reads a trace from r.
func NewReader(r io.Reader) *Reader {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{sc: sc, signals: map[policy.Signal]Observation{}, uids: map[string]string{}, names: map[string]named{}}
}

// Next returns the next line, or io.EOF after the last one. It skips empty lines. The error for a bad line
// contains the line's number.
func (t *Reader) Next() (Line, error) {
	for t.sc.Scan() {
		t.line++
		b := bytes.TrimSpace(t.sc.Bytes())
		if len(b) == 0 {
			continue
		}
		l, err := parseLine(b)
		if err != nil && !t.begun {
			return Line{}, fmt.Errorf("trace line %d: %w", t.line, t.notATrace(err))
		}
		t.begun = true
		if err == nil && l.At < t.last {
			err = fmt.Errorf("at %s: earlier than the line before (%s)", time.Duration(l.At), time.Duration(t.last))
		}
		if err == nil {
			err = errors.Join(t.complete(&l), t.identify("pods", l.Pods), t.identify("changed_pods", l.ChangedPods), t.identifyEnded(l.EndedPods))
		}
		if err != nil {
			return Line{}, fmt.Errorf("trace line %d: %w", t.line, err)
		}
		t.last = l.At
		return l, nil
	}
	if err := t.sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return Line{}, fmt.Errorf("trace line %d: longer than %d MiB", t.line+1, maxLine>>20)
	} else if err != nil {
		return Line{}, fmt.Errorf("trace line %d: %w", t.line+1, err)
	}
	return Line{}, io.EOF
}

// notATrace returns an error that says what the file is, if it is something else that criguard prints.
func (t *Reader) notATrace(err error) error {
	if kind := api.Recognize(t.sc); kind != "" && kind != api.IsNodeTrace {
		return fmt.Errorf("this is %s, not the trace of a node, which has one JSON value per line", kind)
	}
	return err
}

// complete checks that every signal has its amounts, in this line or an earlier one: a signal without a
// capacity could not meet any threshold.
func (t *Reader) complete(l *Line) error {
	for _, s := range policy.Signals() {
		o, ok := l.Signals[s]
		if !ok {
			continue
		}
		old := t.signals[s]
		keep(&o.Available, old.Available)
		keep(&o.Capacity, old.Capacity)
		switch t.signals[s] = o; {
		case o.Capacity == nil:
			return fmt.Errorf("signal %s: capacity is missing", s)
		case o.Available == nil:
			return fmt.Errorf("signal %s: available is missing", s)
		}
	}
	return nil
}

// identify sets the keys of a list of pods, so that a pod keeps its key whether a line names it by its UID, by
// its name or by both.
func (t *Reader) identify(list string, pods []Pod) error {
	seen := map[string]bool{}
	for i := range pods {
		p := &pods[i]
		key, ok := t.uids[p.UID]
		if p.Name == "" && !ok {
			return fmt.Errorf("%s[%d]: name is missing", list, i)
		}
		last, known := t.names[p.Name]
		switch {
		case p.UID == "" && known:
			key, p.UID = last.key, last.uid
		case p.UID != "" && ok:
		case p.UID != "" && known && last.uid == "":
			key = last.key
		default:
			key = p.Key()
		}
		if p.id = key; seen[key] {
			return fmt.Errorf("%s[%d] %s: named twice", list, i, key)
		}
		seen[key] = true
		if p.Name != "" {
			t.names[p.Name] = named{key, p.UID}
		}
		if p.UID != "" {
			t.uids[p.UID] = key
		}
	}
	return nil
}

// identifyEnded replaces the UIDs and names of pods by their keys.
func (t *Reader) identifyEnded(pods []string) error {
	for i, p := range pods {
		key, ok := t.uids[p]
		if last, named := t.names[p]; !ok && named {
			key, ok = last.key, true
		}
		if !ok {
			return fmt.Errorf("ended_pods[%d] %s: no line names it before", i, p)
		}
		pods[i] = key
	}
	return nil
}

func parseLine(b []byte) (Line, error) {
	var l struct {
		Line
		At     *api.Duration `json:"at"`
		Pods   *[]Pod        `json:"pods"`
		Images *[]Image      `json:"images"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return Line{}, api.WrongType(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Line{}, errors.New("more than one JSON value")
	}
	if l.At == nil {
		return Line{}, errors.New(`"at" is missing: the time since the start, such as "30s"`)
	}
	if *l.At < 0 {
		return Line{}, errors.New(`"at" is negative`)
	}
	out := l.Line
	out.At = *l.At
	// An empty list means that the node has no pods or images. A list that is left out keeps its last
	// value.
	if l.Pods != nil {
		out.Pods = append([]Pod{}, *l.Pods...)
	}
	if l.Images != nil {
		out.Images = append([]Image{}, *l.Images...)
	}
	return out, out.validate()
}

func (l *Line) validate() error {
	if l.Layout != "" {
		if _, err := policy.ParseLayout(l.Layout); err != nil {
			return err
		}
	}
	if err := errors.Join(validatePods("pods", l.Pods), validatePods("changed_pods", l.ChangedPods)); err != nil {
		return err
	}
	for i := range l.Images {
		if l.Images[i].ID == "" {
			return fmt.Errorf("images[%d]: id is missing", i)
		}
	}
	return nil
}

func validatePods(list string, pods []Pod) error {
	for i := range pods {
		p := &pods[i]
		if p.QoS != nil {
			if _, err := policy.ParseQoS(*p.QoS); err != nil {
				return fmt.Errorf("%s[%d] %s: %w", list, i, p.Name, err)
			}
		}
		if p.PIDs != nil && *p.PIDs < 0 {
			return fmt.Errorf("%s[%d] %s: pids is negative", list, i, p.Name)
		}
	}
	return nil
}

// Key identifies a pod across the lines of a trace: the UID, or else the name, by which it was first named.
func (p *Pod) Key() string {
	switch {
	case p.id != "":
		return p.id
	case p.UID != "":
		return p.UID
	default:
		return p.Name
	}
}

// Over returns p, with the fields that it leaves out taken from the earlier line.
func (p Pod) Over(old Pod) Pod {
	if p.Name == "" {
		p.Name = old.Name
	}
	if p.UID == "" {
		p.UID = old.UID
	}
	keep(&p.QoS, old.QoS)
	keep(&p.Priority, old.Priority)
	keep(&p.MemoryRequest, old.MemoryRequest)
	keep(&p.MemoryUsage, old.MemoryUsage)
	keep(&p.MemoryFile, old.MemoryFile)
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
	if p.Annotations == nil {
		p.Annotations = old.Annotations
	}
	return p
}

func keep[T any](p **T, old *T) {
	if *p == nil {
		*p = old
	}
}

// Over returns old with the fields that o has. A field that o leaves out keeps its value.
func (o Observation) Over(old policy.Observation) policy.Observation {
	old.Status = policy.OK
	if o.Available != nil {
		old.Available = int64(*o.Available)
	}
	if o.Capacity != nil {
		old.Capacity = int64(*o.Capacity)
	}
	return old
}

// Usage returns the usage as exact values. For nil, the usage is unknown.
func (d *Disk) Usage() policy.DiskUsage {
	if d == nil {
		return policy.DiskUsage{}
	}
	return policy.DiskUsage{
		Rootfs: policy.Exactly(int64(d.Rootfs)), Logs: policy.Exactly(int64(d.Logs)), Volumes: policy.Exactly(int64(d.Volumes)),
		LogsPlace: d.LogsPlace,
	}
}
