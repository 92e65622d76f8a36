package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/criguard/criguard/guard/fleet"
)

// parse parses values; "" = absent.
func parse(pause, rates string) (Policy, error) {
	kv := func(value string) *keyValue {
		if value == "" {
			return nil
		}
		return &keyValue{value: value}
	}
	return parsePolicy(kv(pause), kv(rates))
}

func TestParsePause(t *testing.T) {
	for value, want := range map[string]Policy{
		"":                 {},
		`{"paused":true}`:  {Paused: true},
		`{"paused":false}`: {Resumed: true},
		`{}`:               {Resumed: true},
		`{"paused":1}`:     {Paused: true},
		`broken`:           {Paused: true},
	} {
		if got, err := parse(value, ""); err != nil || got != want {
			t.Errorf("%s: %+v, %v", value, got, err)
		}
	}
}

// Every override replaces its rate, and no other. Only a secondary_rate of the node that would exceed the fleet's rate follows it: an
// operator who slows a fleet down must not leave its nodes alone.
func TestOverrides(t *testing.T) {
	for value, change := range map[string]func(r *fleet.Rates){
		"null":                          func(*fleet.Rates) {},
		"{}":                            func(*fleet.Rates) {},
		`{"rate":0.5}`:                  func(r *fleet.Rates) { r.Rate = 500_000 },
		`{"rate":0.001}`:                func(r *fleet.Rates) { r.Rate, r.Secondary = 1000, 1000 },
		`{"rate":0}`:                    func(r *fleet.Rates) { r.Rate, r.Secondary = 0, 0 },
		`{"rate":0,"secondary_rate":0}`: func(r *fleet.Rates) { r.Rate, r.Secondary = 0, 0 },
		`{"secondary_rate":0.05}`:       func(r *fleet.Rates) { r.Secondary = 50_000 },
		`{"large_zone":10}`:             func(r *fleet.Rates) { r.LargeZone = 10 },
		`{"unhealthy":0.3}`:             func(r *fleet.Rates) { r.Unhealthy = 300_000 },
		`{"min_zone":9}`:                func(r *fleet.Rates) { r.MinZone = 9 },
		`{"workload_interval":"90s"}`:   func(r *fleet.Rates) { r.WorkloadInterval = 90 * time.Second },
	} {
		want := fleet.DefaultRates()
		change(&want)
		p, err := parse("", value)
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if got, err := p.Apply(fleet.DefaultRates()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", value, got, err)
		}
	}
	for value, cause := range map[string]string{
		`broken`:                            "parse rates",
		`{"rate":"0.1"}`:                    "parse",
		`{"rate":-1}`:                       "at least 0",
		`{"rate":0.2,"secondary_rate":0.3}`: "secondary_rate",
		`{"secondary_rate":1}`:              "secondary_rate",
		`{"rate":0.500001}`:                 "rate: want at most 0.5, because a slot lasts at least 2s",
		`{"workload_interval":"2.5s"}`:      "workload_interval: 2.5s: want whole seconds",
		`{"unhealthy":0}`:                   "unhealthy",
		`{"unhealthy":1.1}`:                 "unhealthy",
		`{"large_zone":-1}`:                 "large_zone",
		`{"min_zone":0}`:                    "min_zone",
		`{"workload_interval":300}`:         "parse",
		`{"workload_interval":"1s"}`:        "workload_interval",
		`{"workload_interval":"25h"}`:       "workload_interval",
	} {
		if p, err := parse("", value); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("%s: %+v, %v, want %s", value, p, err, cause)
		}
	}
}

// A name that is misspelled is reported, and has no effect on the others.
func TestUnknownRates(t *testing.T) {
	for value, want := range map[string]string{
		"null": "", "{}": "", `{"rate":0.5,"workload_interval":"90s"}`: "", `{"rate":0.5,"secondry_rate":0}`: `unknown field "secondry_rate"`,
	} {
		p, err := parse("", value)
		if err != nil || p.Unknown != want || strings.Contains(value, "0.5") && *p.Rates.Rate != 500_000 {
			t.Errorf("%s: %+v, %v", value, p, err)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add(`{"paused":true}`, `{"rate":0.5,"workload_interval":"90s"}`)
	f.Add(`broken`, `null`)
	f.Fuzz(func(t *testing.T, pause, rates string) {
		p, err := parse(pause, rates)
		if err != nil {
			return
		}
		if _, err := p.Apply(fleet.DefaultRates()); err != nil {
			t.Errorf("accepted %s: %v", rates, err)
		}
		text, err := json.Marshal(p.Rates)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parse("", string(text))
		if err != nil || !reflect.DeepEqual(back.Rates, p.Rates) {
			t.Errorf("%s became %+v: %v", text, back.Rates, err)
		}
	})
}

// Rates that no node can use do not hide a pause: an operator who has set them by mistake has to be able to stop what follows.
func TestPauseWithInvalidRates(t *testing.T) {
	for value, own := range map[string]fleet.Millionths{
		"broken":                  100_000,
		`{"rate":-1}`:             100_000,
		`{"unhealthy":0}`:         100_000,
		`{"secondary_rate":0.05}`: 20_000, // more than this node's own rate
	} {
		m := newMemory()
		n := m.client(t, "n1")
		n.opt.Rates.Rate = own
		rates := n.opt.Rates
		wish := State{Pools: []string{"memory"}}
		must(t, n.Report(t.Context(), wish))
		m.keys[n.keys.rates()] = &mvccpb.KeyValue{Key: []byte(n.keys.rates()), Value: []byte(value)}
		if _, err := n.Survey(t.Context(), rates); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: survey: %v", value, err)
		}
		if _, err := n.Acquire(t.Context(), rates, "shop/web", "id"); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: acquire: %v", value, err)
		}
		must(t, m.client(t, "").Pause(t.Context(), time.Hour))
		if s, err := n.Survey(t.Context(), rates); err != nil || s.Paused < time.Hour {
			t.Errorf("%s: paused, survey %+v, %v", value, s, err)
		}
		_, err := n.Acquire(t.Context(), rates, "shop/web", "id")
		if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Code != Paused || denied.Left < time.Hour {
			t.Errorf("%s: paused, acquire: %v", value, err)
		}
	}
}

// A fleet in which every node wants a stop is full only if a zone is large enough to count.
func TestFullFleetOfSmallZones(t *testing.T) {
	for _, c := range []struct {
		large int // nodes of a third zone
		full  bool
	}{{0, false}, {1, false}, {fleet.DefaultRates().MinZone, true}} {
		m := newMemory()
		nodes := []string{"a1", "a2", "b1", "b2"}
		for i := range c.large {
			nodes = append(nodes, fmt.Sprint("c", i))
		}
		clients := make([]*Client, len(nodes))
		for i, node := range nodes {
			clients[i] = m.client(t, node)
			clients[i].opt.Zone = node[:1]
			must(t, clients[i].Report(t.Context(), State{}))
		}
		m.now += SettlingTTL
		for _, n := range clients {
			must(t, n.Report(t.Context(), State{Pools: []string{"memory"}}))
		}
		n := clients[0]
		_, err := n.Acquire(t.Context(), n.opt.Rates, "shop/web", "id")
		if denied, ok := errors.AsType[*DeniedError](err); c.full != (ok && denied.Code == FleetFull) || !c.full && err != nil {
			t.Errorf("beside %d nodes in a third zone: %v", c.large, err)
		}
	}
}

// A fleet whose time to settle has just ended permits stops.
func TestPermitsBegin(t *testing.T) {
	rates := fleet.DefaultRates()
	rates.WorkloadInterval = time.Hour
	for _, c := range []struct{ left, whole, want time.Duration }{
		{SettlingTTL, SettlingTTL, time.Hour}, {11 * time.Minute, SettlingTTL, time.Minute}, {time.Minute, SettlingTTL, 0}, {0, 0, 0}, {20 * time.Minute, 30 * time.Minute, 20 * time.Minute},
	} {
		if got := PermitsBegin(rates, c.left, c.whole); got != c.want {
			t.Errorf("%s of %s left: %s, want %s", c.left, c.whole, got, c.want)
		}
	}
}
