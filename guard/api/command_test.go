package api

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
		`{"command":"stop","pod":"d/a","grace":"5s","dry_run":true}`, `{"command":"protect","pod":"d/a","for":"1h"}`, `{"command":"unprotect","pod":"d/a"}`,
	} {
		if _, err := ParseCommand(strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		``:                                  "EOF",
		`[]`:                                "cannot unmarshal",
		`{"command":"halt"}`:                "not a command",
		`{"command":"stop"}`:                "needs a pod",
		`{"command":"protect","for":"1h"}`:  "needs a pod",
		`{"command":"protect","pod":"d/a"}`: "up to 24h",
		`{"command":"unprotect","pod":"d/\u0000"}`:                                 "needs a pod",
		`{"command":"stop","pod":"a","for":"1m"}`:                                  "pause and protect",
		`{"command":"drain","pod":"d/a"}`:                                          "belongs to stop",
		`{"command":"pause"}`:                                                      "up to 24h",
		`{"command":"pause","for":"24h1s"}`:                                        "up to 24h",
		`{"command":"pause","for":"-1s"}`:                                          "up to 24h",
		`{"command":"pause","for":"soon"}`:                                         "soon",
		`{"command":"drain","grace":"2h"}`:                                         "0s to 1h",
		`{"command":"drain","for":"1m"}`:                                           "pause and protect",
		`{"command":"resume","dry_run":true}`:                                      "drain and stop",
		`{"command":"resume","who":"me"}`:                                          "unknown field",
		`{"command":"resume"}{}`:                                                   "more than one",
		`{"command":"resume","reason":"a\u0000"}`:                                  "one line",
		`{"command":"resume","reason":"` + strings.Repeat("x", maxReason+1) + `"}`: "257 bytes",
		`{"command":"resume","reason":"` + strings.Repeat("x", MaxCommand) + `"}`:  "EOF",
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
		if c.For < 0 || time.Duration(c.For) > MaxPaused || c.Grace < 0 || time.Duration(c.Grace) > MaxDrainGrace || len(c.Reason) > maxReason || !plainText(c.Reason) {
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

// A pause or a protection ends when its time is over: one at a time, and the pause first.
func TestExpire(t *testing.T) {
	pause := &Pause{Until: Duration(time.Hour)}
	o := Orders{Pause: pause, Protected: []Protection{{Pod: "d/a", Until: Duration(time.Hour)}, {Pod: "d/b", Until: Duration(2 * time.Hour)}}}
	if v := o.Expire(time.Hour - 1); v != nil || o.Pause != pause || len(o.Protected) != 2 {
		t.Errorf("too early: %+v, %s left", v, o)
	}
	for _, want := range []CommandView{
		{Command: CommandResume, Reason: "the pause is over"}, {Command: CommandUnprotect, Pod: "d/a", Reason: "the protection is over"},
	} {
		if v := o.Expire(time.Hour); v == nil || *v != want {
			t.Errorf("ended %+v, want %+v", v, want)
		}
	}
	if v := o.Expire(time.Hour); v != nil || o.Pause != nil || len(o.Protected) != 1 || o.Protected[0].Pod != "d/b" {
		t.Errorf("afterwards: %+v, %+v", v, o)
	}
}
