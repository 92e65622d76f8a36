package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// stateFile is the file of the state that outlives a restart of the agent. Its times are since boot, so it belongs into
// a directory that a reboot empties. The guard's fleet.json may be in the same directory.
const stateFile = "fleet-agent.json"

// maxStateFile exceeds every state.
const maxStateFile = 64 << 10

// Saved is the state that outlives a restart of the agent, but not of the node.
type Saved struct {
	Fleet string // whose pause and permits it has
	fleet.Saved
	Soft     policy.Bucket                // the node's budget of soft stops: tokens are spread over its period
	Requests map[policy.Pool]SavedRequest // that etcd may know
}

// SavedRequest is a request whose permit the guard was not given.
type SavedRequest struct {
	Sandbox string `json:"sandbox"` // of the pod
	Request
	ID string `json:"id"` // of the permit
}

// savedState is the JSON of [Saved].
type savedState struct {
	Fleet      string                       `json:"fleet,omitempty"`
	Held       map[policy.Pool]api.Duration `json:"held,omitempty"`
	AloneSince api.Duration                 `json:"alone_since,omitempty"`
	Paused     api.Duration                 `json:"paused_until,omitempty"`
	Trickle    savedTokens                  `json:"trickle,omitzero"`
	Local      savedTokens                  `json:"local,omitzero"`
	Soft       Soft                         `json:"soft,omitzero"`
	Requests   map[policy.Pool]SavedRequest `json:"requests,omitempty"`
}

// maxID exceeds the IDs of permits that this package draws.
const maxID = 64

type savedTokens struct {
	On    bool         `json:"on"`
	First api.Duration `json:"first"`
}

// loadState reads the state that another agent saved in a directory. Without a file, it is empty.
func loadState(dir string, now time.Duration) (Saved, error) {
	s, err := rundir.Load(rundir.Dir(dir), stateFile, rundir.Access{Mode: 0o600}, func(text []byte) (Saved, error) { return parseState(text, now) })
	if err != nil {
		return Saved{}, fmt.Errorf("read state: %s: %w", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

var errOtherBoot = errors.New("it is of another boot or damaged")

// parseState parses a state and checks that its times fit the time since boot.
func parseState(text []byte, now time.Duration) (Saved, error) {
	if len(text) > maxStateFile {
		return Saved{}, errOtherBoot
	}
	var f savedState
	if err := json.Unmarshal(text, &f); err != nil {
		return Saved{}, fmt.Errorf("parse: %w", err)
	}
	const most = api.Duration(20 * 365 * 24 * time.Hour)
	if f.AloneSince < 0 || time.Duration(f.AloneSince) > now {
		return Saved{}, errOtherBoot
	}
	for _, d := range []api.Duration{f.Paused, f.Trickle.First, f.Local.First} {
		if d < 0 || d > most {
			return Saved{}, errOtherBoot
		}
	}
	if f.Soft.Burst < 0 || f.Soft.Every < 0 {
		return Saved{}, errOtherBoot
	}
	s := Saved{Fleet: f.Fleet, Soft: policy.Bucket{Burst: f.Soft.Burst, Every: time.Duration(f.Soft.Every)}, Requests: f.Requests, Saved: fleet.Saved{
		Held: map[policy.Pool]time.Duration{}, AloneSince: time.Duration(f.AloneSince), Paused: time.Duration(f.Paused),
		Trickle: fleet.SavedTokens{On: f.Trickle.On, First: time.Duration(f.Trickle.First)},
		Local:   fleet.SavedTokens{On: f.Local.On, First: time.Duration(f.Local.First)},
	}}
	for _, r := range f.Requests {
		if r.check(r.Sandbox) != nil || r.ID == "" || len(r.ID) > maxID {
			return Saved{}, errOtherBoot
		}
	}
	for p, held := range f.Held {
		if held < 0 || time.Duration(held) > now {
			return Saved{}, errOtherBoot
		}
		s.Held[p] = time.Duration(held)
	}
	return s, nil
}

func formatState(s Saved) ([]byte, error) {
	f := savedState{
		Fleet:      s.Fleet,
		Requests:   s.Requests,
		Soft:       Soft{s.Soft.Burst, api.Duration(s.Soft.Every)},
		AloneSince: api.Duration(s.AloneSince), Paused: api.Duration(s.Paused),
		Trickle: savedTokens{s.Trickle.On, api.Duration(s.Trickle.First)},
		Local:   savedTokens{s.Local.On, api.Duration(s.Local.First)},
	}
	for p, held := range s.Held {
		if f.Held == nil {
			f.Held = map[policy.Pool]api.Duration{}
		}
		f.Held[p] = api.Duration(held)
	}
	return json.Marshal(f)
}
