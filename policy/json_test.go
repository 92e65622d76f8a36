package policy

import (
	"encoding/json"
	"testing"
)

// Conditions are a list of names in JSON.
func TestConditionsJSON(t *testing.T) {
	for text, want := range map[string]Conditions{`[]`: 0, `["MemoryPressure","DiskPressure"]`: ConditionsOf(MemoryPressure, DiskPressure)} {
		if b, err := json.Marshal(want); err != nil || string(b) != text {
			t.Errorf("%s was encoded as %s, %v", text, b, err)
		}
		var got Conditions
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{`1`, `["Pressure"]`, `{}`} {
		if err := json.Unmarshal([]byte(text), new(Conditions)); err == nil {
			t.Errorf("%s is a list of conditions", text)
		}
	}
}

// The value of a rank key is left out of JSON if it is unknown, and only then.
func TestKeyValueJSON(t *testing.T) {
	for text, want := range map[string]KeyValue{`{"key":"usage"}`: {KeyUsage, Unknown}, `{"key":"usage","value":0}`: {KeyUsage, 0}, `{"key":"priority","value":-5}`: {KeyPriority, -5}} {
		if b, err := json.Marshal(want); err != nil || string(b) != text {
			t.Errorf("%s was encoded as %s, %v", text, b, err)
		}
		var got KeyValue
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
