package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// Writer writes a trace of a live node. Each line has only what changed since the line before.
type Writer struct {
	enc     *json.Encoder
	written bool // the first line, which has everything
	layout  string
	signals map[policy.Signal]Observation
	pods    map[string]Pod // by key
	images  []Image
}

// NewWriter writes a trace to w.
func NewWriter(w io.Writer) *Writer {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &Writer{enc: enc, signals: map[policy.Signal]Observation{}, pods: map[string]Pod{}}
}

// Write writes the state of the node: its signals, all its pods and all its images. A nil Images means that
// they are not known.
func (t *Writer) Write(l Line) error {
	l.Recorded, l.Pods = !t.written, newestOfEach(l.Pods)
	if t.written {
		l.Began = time.Time{}
		t.omitPods(&l)
	} else {
		for _, p := range l.Pods {
			t.pods[p.Key()] = p
		}
	}
	for s, o := range l.Signals {
		old := t.signals[s]
		t.signals[s] = o
		if same(o.Capacity, old.Capacity) {
			o.Capacity = nil
		}
		if same(o.Available, old.Available) {
			o.Available = nil
		}
		if l.Signals[s] = o; o == (Observation{}) {
			delete(l.Signals, s)
		}
	}
	if l.Layout == t.layout {
		l.Layout = ""
	} else {
		t.layout = l.Layout
	}
	if images := l.Images; images == nil || slices.EqualFunc(images, t.images, Image.same) {
		l.Images = nil
	} else {
		t.images = images
	}
	t.written = true
	if err := t.enc.Encode(l); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// newestOfEach returns each pod once. While the kubelet replaces a sandbox, a pod may have two.
func newestOfEach(pods []Pod) []Pod {
	at, kept := make(map[string]int, len(pods)), make([]Pod, 0, len(pods))
	for _, p := range pods {
		i, twice := at[p.Key()]
		if !twice {
			at[p.Key()] = len(kept)
			kept = append(kept, p)
		} else if old := kept[i].Created; p.Created != nil && (old == nil || *p.Created > *old) {
			kept[i] = p
		}
	}
	return kept
}

// omitPods replaces all pods by those that have ended or changed. A pod that was created again has ended, too.
func (t *Writer) omitPods(l *Line) {
	pods := make(map[string]Pod, len(l.Pods))
	for _, p := range l.Pods {
		key := p.Key()
		old, known := t.pods[key]
		pods[key] = p
		if known && !same(p.Created, old.Created) {
			l.EndedPods = append(l.EndedPods, key)
			known = false
		}
		if !known {
			l.ChangedPods = append(l.ChangedPods, p)
		} else if changed, differs := p.less(old); differs {
			l.ChangedPods = append(l.ChangedPods, changed)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.pods)) {
		if _, runs := pods[key]; !runs {
			l.EndedPods = append(l.EndedPods, key)
		}
	}
	l.Pods, t.pods = nil, pods
}

// less returns p without the fields that are as in old, and whether any field is left.
func (p Pod) less(old Pod) (changed Pod, differs bool) {
	differs = p.Name != old.Name
	if p.UID != "" && !differs {
		p.Name = ""
	}
	drop(&p.QoS, old.QoS, &differs)
	drop(&p.Priority, old.Priority, &differs)
	drop(&p.MemoryRequest, old.MemoryRequest, &differs)
	drop(&p.MemoryUsage, old.MemoryUsage, &differs)
	drop(&p.MemoryFile, old.MemoryFile, &differs)
	drop(&p.SwapUsage, old.SwapUsage, &differs)
	drop(&p.StorageRequest, old.StorageRequest, &differs)
	drop(&p.DiskUsage, old.DiskUsage, &differs)
	drop(&p.InodesUsage, old.InodesUsage, &differs)
	drop(&p.PIDs, old.PIDs, &differs)
	drop(&p.Static, old.Static, &differs)
	drop(&p.Protected, old.Protected, &differs)
	drop(&p.NoStats, old.NoStats, &differs)
	drop(&p.Created, old.Created, &differs)
	drop(&p.GracePeriod, old.GracePeriod, &differs)
	drop(&p.StorageLimit, old.StorageLimit, &differs)
	dropMap(&p.Labels, old.Labels, &differs)
	dropMap(&p.Annotations, old.Annotations, &differs)
	return p, differs
}

// dropMap is drop for a map.
func dropMap(m *map[string]string, old map[string]string, left *bool) {
	if maps.Equal(*m, old) {
		*m = nil
	}
	*left = *left || *m != nil
}

// drop removes a value that has not changed, and records in left whether one is left.
func drop[T comparable](v **T, old *T, left *bool) {
	if same(*v, old) {
		*v = nil
	}
	*left = *left || *v != nil
}

func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func (i Image) same(o Image) bool {
	age, repullable := same(i.Age, o.Age), same(i.Repullable, o.Repullable)
	i.Age, i.Repullable, o.Age, o.Repullable = nil, nil, nil, nil
	return age && repullable && i == o
}
