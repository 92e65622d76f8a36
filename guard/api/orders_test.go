package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLoadOrders(t *testing.T) {
	const now = time.Hour
	save := func(boot string, o Orders) []byte {
		b, err := json.Marshal(SavedOrders{boot, o})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pause := &Pause{Since: Duration(now - time.Minute), Until: Duration(now + time.Minute), Reason: "r", By: Peer{UID: 7, PID: 8}}
	drain := &Drain{Since: Duration(now), Grace: Duration(time.Second)}
	protected := func(since, until time.Duration) Orders {
		return Orders{Protected: []Protection{{Pod: "d/a", Since: Duration(since), Until: Duration(until)}}}
	}
	for _, c := range []struct {
		name         string
		data         []byte
		pause, drain bool
		bad          bool
	}{
		{"both", save("b", Orders{Pause: pause, Drain: drain}), true, true, false},
		{"another boot", save("a", Orders{Pause: pause, Drain: drain}), false, false, false},
		{"over", save("b", Orders{Pause: &Pause{Since: 1, Until: Duration(now)}}), false, false, false},
		{"for ever", save("b", Orders{Pause: &Pause{Since: 1, Until: 1 << 62}}), false, false, true},
		{"in the future", save("b", Orders{Drain: &Drain{Since: Duration(now + 1)}}), false, false, true},
		{"negative grace", save("b", Orders{Drain: &Drain{Since: 1, Grace: -1}}), false, false, true},
		{"protected for ever", save("b", protected(1, 1<<62)), false, false, true},
		{"protected in the future", save("b", protected(now+1, now+2)), false, false, true},
		{"torn", []byte(`{"boot_id":"b","pau`), false, false, true},
		{"nothing", save("b", Orders{}), false, false, false},
	} {
		o, err := LoadOrders(c.data, "b", now)
		if (o.Pause != nil) != c.pause || (o.Drain != nil) != c.drain || (err != nil) != c.bad {
			t.Errorf("%s: %+v, %v", c.name, o, err)
		}
		if len(o.Protected) > 0 {
			t.Errorf("%s: protected %+v", c.name, o.Protected)
		}
		if c.pause && *o.Pause != *pause {
			t.Errorf("%s: %+v", c.name, o.Pause)
		}
	}
	for until, want := range map[time.Duration]int{now: 0, now + time.Minute: 1} {
		if o, err := LoadOrders(save("b", protected(1, until)), "b", now); err != nil || len(o.Protected) != want {
			t.Errorf("protected until %s: %+v, %v", until, o, err)
		}
	}
}

func FuzzOrders(f *testing.F) {
	f.Add([]byte(`{"boot_id":"b","pause":{"since":"1s","until":"2h0m0s"},"drain":{"since":"2s","grace":"3s"},"protected":[{"pod":"d/a","since":"1s","until":"2h"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := LoadOrders(data, "b", time.Hour)
		if err != nil && o.String() != "none" {
			t.Fatalf("%+v beside %v", o, err)
		}
		if p := o.Pause; p != nil && (time.Duration(p.Until) <= time.Hour || time.Duration(p.Until) > time.Hour+MaxPaused) {
			t.Fatalf("paused until %s", p.Until)
		}
	})
}

// The status line names each order in force, with its reason.
func TestOrdersLine(t *testing.T) {
	pause := &Pause{Until: Duration(time.Minute), Reason: "upgrade"}
	for want, o := range map[string]Orders{
		"":                           {},
		"PAUSED until ":              {Pause: &Pause{Until: Duration(time.Minute)}},
		"DRAINED":                    {Drain: &Drain{}},
		"DRAINED (old), 2 PROTECTED": {Drain: &Drain{Reason: "old"}, Protected: make([]Protection, 2)},
	} {
		if got := o.Line(0); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (Orders{Pause: pause, Drain: &Drain{}, Protected: make([]Protection, 1)}).Line(0); !strings.HasSuffix(got, " (upgrade), DRAINED, 1 PROTECTED") {
		t.Errorf("got %q", got)
	}
}
