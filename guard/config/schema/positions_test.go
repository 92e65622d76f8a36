package schema

import (
	"maps"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestFindKeyLines(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       keyLines
	}{
		{"nothing", "", keyLines{}},
		{"comments", "# a = 1\n\n  # b = 2", keyLines{}},
		{"top", "a = 1\n\n  b = 2 # c = 3\n", keyLines{"a": 1, "b": 3}},
		{"tables", "[a]\nb = 1\n\n[ a . c ]\nd = 2", keyLines{"a": 1, "a.b": 2, "a.c": 4, "a.c.d": 5}},
		{"a table of its own after its part", "[a.b]\nc = 1\n[a]\nd = 2", keyLines{"a": 3, "a.b": 1, "a.b.c": 2, "a.d": 4}},
		{"dotted keys", "a.b.c = 1\na.d = 2", keyLines{"a": 1, "a.b": 1, "a.b.c": 1, "a.d": 2}},
		{"quoted keys", "[\"a.b\"]\n'c d' = 1\n\"e\".f = 2", keyLines{`"a.b"`: 1, `"a.b"."c d"`: 2, `"a.b".e`: 3, `"a.b".e.f`: 3}},
		{"lists of tables", "[[p]]\na = 1\n[[p]]\na = 2\n[p.q]\nb = 3", keyLines{"p": 1, "p[1]": 1, "p[1].a": 2, "p[2]": 3, "p[2].a": 4, "p[2].q": 5, "p[2].q.b": 6}},
		{"a list over lines", "a = [\n 'x', # ]\n ']',\n]\nb = 1", keyLines{"a": 1, "b": 5}},
		{"a table in a line", "a = {b = 1, c = {d = 2}}\ne = 3", keyLines{"a": 1, "e": 2}},
		{"text over lines", "a = \"\"\"\nb = 1\n\\\"\"\"\n\"\"\"\"\"\nc = '''\nd = 2'''\ne = 3", keyLines{"a": 1, "c": 5, "e": 7}},
		{"hashes and brackets in text", "a = \"# [ \\\" { \"\nb = '\\'\nc = 3", keyLines{"a": 1, "b": 2, "c": 3}},
		{"an empty text", "a = \"\"\nb = ''\nc = 1", keyLines{"a": 1, "b": 2, "c": 3}},
		{"windows", "a = 1\r\n[b]\r\nc = 2\r\n", keyLines{"a": 1, "b": 2, "b.c": 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, beyond := findKeyLines(test.text)
			if beyond.line != 0 {
				t.Errorf("beyond %v", beyond)
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestEnclosingKey(t *testing.T) {
	lines := keyLines{"a": 1, "a.b": 2, "p[2]": 3, "p": 1}
	for key, want := range map[string]int{
		"a": 1, "a.b": 2, "a.b.c": 2, `a."x.y"`: 1, "a.b[3]": 2, "p[2].x": 3, "p[1].x": 1, "c": 0, "": 0, "c.d[1]": 0,
	} {
		if got, _ := enclosing(lines, key); got != want {
			t.Errorf("%s: got %d, want %d", key, got, want)
		}
	}
	if got, _ := enclosing(keyLines(nil), "a"); got != 0 {
		t.Errorf("without lines: %d", got)
	}
	for line, want := range map[int]string{1: "a", 2: "a.b", 3: "p[2]", 4: ""} {
		if got := lines.at(line); got != want {
			t.Errorf("line %d: got %q, want %q", line, got, want)
		}
	}
}

// The limits far exceed what a configuration needs, and texts within them parse quickly.
func TestFindKeyLinesBounds(t *testing.T) {
	for name, text := range map[string]string{
		"lists":        "a = " + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		"tables":       "a = " + strings.Repeat("{a = ", maxDepth) + "1" + strings.Repeat("}", maxDepth),
		"parts":        strings.Repeat("a.", maxKeyParts-1) + "a = 1",
		"header":       "[" + strings.Repeat("a.", maxKeyParts-1) + "a]",
		"inline":       "a = {" + strings.Repeat("a.", maxKeyParts-1) + "a = 1}",
		"in text":      "a = '" + strings.Repeat("[{.", 100) + "'",
		"in a comment": "# " + strings.Repeat("[{.", 100),
		"in a list":    "a = [" + strings.Repeat("'a.b.c', ", 100) + "]",
		"one by one":   "a = [" + strings.Repeat("{b.c = 1.5},", 100) + "]",
	} {
		if _, beyond := findKeyLines(text); beyond.line != 0 {
			t.Errorf("%s: beyond %v", name, beyond)
		}
		var tree map[string]any
		if _, err := toml.Decode(text, &tree); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
