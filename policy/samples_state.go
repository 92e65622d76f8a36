package policy

import (
	"encoding/json"
	"fmt"
	"time"
)

// savedSamples is the JSON form of samples. Times are nanoseconds since boot.
type savedSamples struct {
	BootID string        `json:"boot_id"`
	Kept   []savedSample `json:"samples"`
	Gifts  []gift        `json:"gifts,omitempty"`
}

type savedSample struct {
	At         time.Duration          `json:"at"`
	Signals    map[Signal]Observation `json:"signals"`
	Pods       map[string]savedPod    `json:"pods"` // by sandbox
	PodsCgroup *int64                 `json:"pods_cgroup,omitempty"`
}

// savedPod is a podSample: memory, swap, tasks, page cache, and 1 if it is apart. Of an unknown amount, -1 is saved.
type savedPod [5]int64

// Saved returns what the next run of the service needs of the samples, for JSON: the oldest and the newest, so that one of
// them is old enough and not too old, and what stops have given back since.
func (s *Samples) Saved(bootID string) any {
	saved := savedSamples{BootID: bootID, Gifts: s.gifts}
	for i := range s.kept {
		if i == 0 || i == len(s.kept)-1 {
			saved.Kept = append(saved.Kept, s.kept[i].saved())
		}
	}
	return saved
}

func (s *sample) saved() savedSample {
	to := savedSample{At: s.at, Signals: map[Signal]Observation{}, Pods: make(map[string]savedPod, len(s.pods))}
	if s.cgroup.Known {
		to.PodsCgroup = &s.cgroup.Value
	}
	for sig, o := range s.obs {
		if o.usable() {
			to.Signals[Signal(sig)] = o
		}
	}
	for id, used := range s.pods {
		p := savedPod{3: used.cache}
		if used.apart {
			p[4] = 1
		}
		for i, a := range []Amount{used.memory, used.swap, used.pids} {
			if p[i] = max(a.Value, 0); !a.Known {
				p[i] = -1
			}
		}
		to.Pods[id] = p
	}
	return to
}

// LoadSamples restores samples that were saved on this boot. Those of another boot or of the future are discarded.
func LoadSamples(data []byte, bootID string, now time.Duration) (s Samples, err error) {
	var saved savedSamples
	if err := json.Unmarshal(data, &saved); err != nil {
		return Samples{}, fmt.Errorf("restore samples: %w", err)
	}
	for _, from := range saved.Kept {
		if last := len(s.kept) - 1; saved.BootID != bootID || from.At < 0 || from.At > now || last >= 0 && from.At < s.kept[last].at {
			continue
		}
		to := sample{at: from.At, pods: make(map[string]podSample, len(from.Pods))}
		if c := from.PodsCgroup; c != nil {
			to.cgroup = Known(max(*c, 0))
		}
		for sig, o := range from.Signals {
			if o.usable() {
				to.obs[sig] = o
			}
		}
		for id, used := range from.Pods {
			p := podSample{cache: max(used[3], 0), apart: used[4] > 0}
			for i, to := range []*Amount{&p.memory, &p.swap, &p.pids} {
				*to = Amount{max(used[i], 0), used[i] >= 0}
			}
			to.pods[id] = p
		}
		s.kept = append(s.kept, to)
	}
	for _, g := range saved.Gifts {
		if saved.BootID == bootID && g.At >= 0 && g.At <= now && g.Amount >= 0 {
			s.Gave(g.Pool, g.Amount, g.At)
		}
	}
	return s, nil
}
