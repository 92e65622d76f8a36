package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// Policy is what operators have set for the whole fleet.
type Policy struct {
	Paused bool
	// Resumed is set for a day after an operator ended a pause. A pause that is gone before its time without it was lost.
	Resumed bool
	Rates   *Overrides // nil = as each node is configured
	// Unknown says which key of the rates this version does not know; "" = none. It has no effect: a newer version may have put it.
	Unknown string
}

// Overrides replaces rates of the configuration; nil keeps one.
type Overrides struct {
	Rate             *fleet.Millionths `json:"rate,omitempty"`
	Secondary        *fleet.Millionths `json:"secondary_rate,omitempty"`
	LargeZone        *int              `json:"large_zone,omitempty"`
	Unhealthy        *fleet.Millionths `json:"unhealthy,omitempty"`
	MinZone          *int              `json:"min_zone,omitempty"`
	WorkloadInterval *Duration         `json:"workload_interval,omitempty"`
}

// Duration is a time.Duration that is a string in JSON, such as "5m0s".
type Duration time.Duration

// MarshalText formats the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// pauseValue is the value of policy/pause.
type pauseValue struct {
	Paused bool `json:"paused"`
}

// resumedFor is for how long a resume is remembered.
const resumedFor = 24 * time.Hour

// parsePolicy parses the operators' keys; nil = absent. A pause that cannot be parsed is a pause. With an error, the policy has
// the pause.
func parsePolicy(pause, rates *keyValue) (Policy, error) {
	var p Policy
	if pause != nil {
		value := pauseValue{}
		if json.Unmarshal([]byte(pause.value), &value) != nil {
			value.Paused = true
		}
		p.Paused, p.Resumed = value.Paused, !value.Paused
	}
	if rates == nil {
		return p, nil
	}
	with := p
	if err := json.Unmarshal([]byte(rates.value), &with.Rates); err != nil {
		return p, fmt.Errorf("parse rates: %w", err)
	}
	if _, err := with.Apply(fleet.DefaultRates()); err != nil {
		return p, err
	}
	strict := json.NewDecoder(strings.NewReader(rates.value))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&Overrides{}); err != nil {
		with.Unknown = clean(strings.TrimPrefix(err.Error(), "json: "))
	}
	return with, nil
}

// Apply returns the rates with the policy's in place of the configured ones.
func (p Policy) Apply(r fleet.Rates) (fleet.Rates, error) {
	if p.Rates == nil {
		return r, nil
	}
	replace(&r.Rate, p.Rates.Rate)
	replace(&r.Secondary, p.Rates.Secondary)
	replace(&r.LargeZone, p.Rates.LargeZone)
	replace(&r.Unhealthy, p.Rates.Unhealthy)
	replace(&r.MinZone, p.Rates.MinZone)
	if p.Rates.Secondary == nil { // the node's own may exceed the fleet's rate
		r.Secondary = min(r.Secondary, r.Rate)
	}
	if p.Rates.WorkloadInterval != nil {
		r.WorkloadInterval = time.Duration(*p.Rates.WorkloadInterval)
	}
	const (
		most    = 1_000_000 // a million in millionths is 1
		highest = fleet.Millionths(most * time.Second / fleet.MinSlot)
	)
	switch {
	case r.Rate > highest:
		return r, fmt.Errorf("rate: want at most %s, because a slot lasts at least %s, the shortest lease in etcd", highest, fleet.MinSlot)
	case r.Rate < 0 || r.Secondary < 0 || r.Secondary > r.Rate:
		return r, errors.New("rate and secondary_rate: want 0 ≤ secondary_rate ≤ rate")
	case r.Unhealthy <= 0 || r.Unhealthy > most:
		return r, errors.New("unhealthy: want a number above 0, at most 1")
	case r.LargeZone < 0 || r.MinZone < 1:
		return r, errors.New("large_zone and min_zone: want at least 0 and at least 1")
	case r.WorkloadInterval < fleet.MinSlot || r.WorkloadInterval > 24*time.Hour:
		return r, fmt.Errorf("workload_interval: want %s to 24h", fleet.MinSlot)
	case r.WorkloadInterval%time.Second != 0:
		return r, fmt.Errorf("workload_interval: %s: want whole seconds, the unit of leases in etcd", r.WorkloadInterval)
	}
	return r, nil
}

func replace[T any](at *T, by *T) {
	if by != nil {
		*at = *by
	}
}

// Pause suspends all soft stops of the fleet for a duration, at least MinSlot. It replaces an earlier pause.
func (c *Client) Pause(ctx context.Context, d time.Duration) error {
	return c.setPause(ctx, "pause fleet", pauseValue{Paused: true}, d)
}

// Survey is what a node sees of its zone and of the policy.
type Survey struct {
	Zone    fleet.Zone
	State   fleet.State
	Paused  time.Duration // for how long soft stops are suspended at most; 0 = they are not
	Resumed bool          // an operator ended the last pause
	// NameTaken is set if another agent reports under the node's name, so that the fleet counts both as one: machines were cloned.
	NameTaken bool
}

// Survey reads the node's zone and the policy. It only reads.
func (c *Client) Survey(ctx context.Context, rates fleet.Rates) (Survey, error) {
	look, err := c.Look(ctx, "")
	if err != nil && !look.Policy.Paused {
		return Survey{}, err
	}
	if rates, err = look.Policy.Apply(rates); err != nil && !look.Policy.Paused {
		return Survey{}, refuse("apply policy", ErrPolicy, err.Error())
	}
	c.applied(rates)
	s := Survey{Zone: look.Zone, State: rates.State(look.Zone), Resumed: look.Policy.Resumed, NameTaken: c.nameTaken()}
	if look.Policy.Paused { // whatever the rates are
		s.Paused, err = c.remaining(ctx, look.pause)
	}
	return s, err
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context) error {
	return c.setPause(ctx, "resume fleet", pauseValue{}, resumedFor)
}

func (c *Client) setPause(ctx context.Context, op string, value pauseValue, d time.Duration) error {
	if d < fleet.MinSlot {
		return fmt.Errorf("%s: %s is too short (hint: at least %s)", op, d, fleet.MinSlot)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	lease, _, err := c.grant(ctx, d)
	if err != nil {
		return fmt.Errorf("%s: %w", op, errors.Join(err, c.abandon(ctx)))
	}
	_, err = c.transact(ctx, op, &txnRequest{success: []*requestOp{put(c.keys.pause(), string(text), lease)}})
	if err != nil && !isUnknown(err) { // without its lease, a pause that may be in force would end
		return errors.Join(err, c.abandon(ctx, lease))
	}
	return err
}

// SetRates replaces the operators' rates of the fleet; nil removes them, so that each node's own apply.
func (c *Client) SetRates(ctx context.Context, rates *Overrides) error {
	const op = "set rates"
	if _, err := (Policy{Rates: rates}).Apply(fleet.DefaultRates()); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	text, err := json.Marshal(rates) // null for nil, which parses as no rates
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	_, err = c.transact(ctx, op, &txnRequest{success: []*requestOp{put(c.keys.rates(), string(text), 0)}})
	return err
}
