package guard

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseCommand(t *testing.T) {
	for _, text := range []string{
		`{"command":"pause","for":"30m","reason":"new disk"}`, `{"command":"pause","for":"24h"}`, `{"command":"resume"}`,
		`{"command":"drain","grace":"0s"}`, `{"command":"drain","grace":"30s","dry_run":true}`, `{"command":"undrain","reason":"done"}`,
	} {
		if _, err := ParseCommand(strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		``:                                        "EOF",
		`[]`:                                      "cannot unmarshal",
		`{"command":"stop"}`:                      "none of",
		`{"command":"pause"}`:                     "up to 24h",
		`{"command":"pause","for":"24h1s"}`:       "up to 24h",
		`{"command":"pause","for":"-1s"}`:         "up to 24h",
		`{"command":"pause","for":"soon"}`:        "soon",
		`{"command":"drain","grace":"2h"}`:        "0s to 1h",
		`{"command":"drain","for":"1m"}`:          "pause alone",
		`{"command":"resume","dry_run":true}`:     "drain alone",
		`{"command":"resume","who":"me"}`:         "unknown field",
		`{"command":"resume"}{}`:                  "more than one",
		`{"command":"resume","reason":"a\u0000"}`: "one line",
		`{"command":"resume","reason":"` + strings.Repeat("x", maxReason+1) + `"}`: "257 bytes",
		`{"command":"resume","reason":"` + strings.Repeat("x", maxCommand) + `"}`:  "EOF",
	} {
		if _, err := ParseCommand(strings.NewReader(text)); !errors.Is(err, ErrBadCommand) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func FuzzCommand(f *testing.F) {
	f.Add(`{"command":"pause","for":"30m","reason":"new disk"}`)
	f.Add(`{"command":"drain","grace":"30s","dry_run":true}`)
	f.Add(`{"command":"undrain"} x`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCommand(strings.NewReader(text))
		if err != nil {
			return
		}
		if c.For < 0 || time.Duration(c.For) > maxPaused || c.Grace < 0 || time.Duration(c.Grace) > maxDrainGrace || len(c.Reason) > maxReason || !plainText(c.Reason) {
			t.Fatalf("out of bounds: %+v", c)
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseCommand(strings.NewReader(string(b))); err != nil || again != c {
			t.Fatalf("%+v is written as %s and read as %+v, %v", c, b, again, err)
		}
	})
}

func TestLoadOrders(t *testing.T) {
	const now = time.Hour
	save := func(boot string, o Orders) []byte {
		b, err := json.Marshal(savedOrders{boot, o})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pause := &Pause{Since: now - time.Minute, Until: now + time.Minute, Reason: "r", By: Peer{UID: 7, PID: 8}}
	drain := &Drain{Since: now, Grace: time.Second}
	for _, c := range []struct {
		name         string
		data         []byte
		pause, drain bool
		bad          bool
	}{
		{"both", save("b", Orders{pause, drain}), true, true, false},
		{"another boot", save("a", Orders{pause, drain}), false, false, false},
		{"over", save("b", Orders{Pause: &Pause{Since: 1, Until: now}}), false, false, false},
		{"for ever", save("b", Orders{Pause: &Pause{Since: 1, Until: 1 << 62}}), false, false, true},
		{"in the future", save("b", Orders{Drain: &Drain{Since: now + 1}}), false, false, true},
		{"negative grace", save("b", Orders{Drain: &Drain{Since: 1, Grace: -1}}), false, false, true},
		{"torn", []byte(`{"boot_id":"b","pau`), false, false, true},
		{"nothing", save("b", Orders{}), false, false, false},
	} {
		o, err := loadOrders(c.data, "b", now)
		if (o.Pause != nil) != c.pause || (o.Drain != nil) != c.drain || (err != nil) != c.bad {
			t.Errorf("%s: %+v, %v", c.name, o, err)
		}
		if c.pause && *o.Pause != *pause {
			t.Errorf("%s: %+v", c.name, o.Pause)
		}
	}
}

func FuzzOrders(f *testing.F) {
	f.Add([]byte(`{"boot_id":"b","pause":{"since":1,"until":7200000000000},"drain":{"since":2,"grace":3}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := loadOrders(data, "b", time.Hour)
		if err != nil && o != (Orders{}) {
			t.Fatalf("%+v beside %v", o, err)
		}
		if p := o.Pause; p != nil && (p.Until <= time.Hour || p.Until > time.Hour+maxPaused) {
			t.Fatalf("paused until %s", p.Until)
		}
	})
}
