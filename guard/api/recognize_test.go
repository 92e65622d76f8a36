package api

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
)

// Output is recognized by its outermost fields alone, also if the text ends early.
func TestRecognize(t *testing.T) {
	pass, err := json.Marshal(Pass{ID: 1, Wake: "timer"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.MarshalIndent(HistoryList{APIVersion: APIVersion, Passes: []Pass{{ID: 1}}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(pass): IsHistory, string(list): IsHistory, string(list[:60]): IsHistory,
		"{\n  \"apiVersion\": \"criguard.io/v1\",\n  \"pods\":": IsAnswer,
		`{"at":"0s","signals":{"members":1}}`:                   IsNodeTrace, `{"at":"0s","members":{"signals":1}}`: IsFleetTrace,
		"{\n  \"a\": 1,": IsIndented, "{}\n{\"passes\":": "", `{"a":{"passes":[]}}`: "", "passes": "", "": "", "[]": "", `{"passes`: "", `{1`: "", "{}\n": "",
	} {
		if got := recognize(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func recognize(text string) string {
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Scan()
	return Recognize(sc)
}

// Any text has a kind or none.
func FuzzRecognize(f *testing.F) {
	for _, text := range []string{"{", `{"a":`, `{"id":1,"wake":[]}`, "{\n\"passes\""} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { recognize(text) })
}
