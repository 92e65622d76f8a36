package reclaim

import (
	"encoding/json"
	"testing"
	"time"
)

// A duration is a string in JSON, and nothing else is a duration.
func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{`"1.5s"`: 1500 * time.Millisecond, `"-1h0m0s"`: -time.Hour, `"0s"`: 0, `"7ns"`: 7} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %s, %v", text, d, err)
		}
		if b, err := json.Marshal(d); err != nil || string(b) != text {
			t.Errorf("%s was encoded as %s, %v", text, b, err)
		}
	}
	for _, text := range []string{`1500000000`, `"1.5"`, `"soon"`, `{}`} {
		if err := json.Unmarshal([]byte(text), new(Duration)); err == nil {
			t.Errorf("%s is a duration", text)
		}
	}
	if b, err := json.Marshal(struct {
		Wait Duration `json:"wait,omitempty"`
	}{}); err != nil || string(b) != "{}" {
		t.Errorf("%s, %v", b, err)
	}
}
