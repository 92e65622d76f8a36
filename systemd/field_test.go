package systemd

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// field is one field of a record, as the journal parses it.
type field struct{ name, value string }

// record holds the fields that the journal parses from a datagram, in their order.
type record []field

func (r record) get(name string) string {
	for _, f := range r {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func (r record) has(name string) bool {
	for _, f := range r {
		if f.name == name {
			return true
		}
	}
	return false
}

var validName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// parseRecord parses the native protocol by the rules of https://systemd.io/JOURNAL_NATIVE_PROTOCOL. It
// rejects anything that the journal would reject or ignore.
func parseRecord(b string) (record, error) {
	var r record
	for b != "" {
		line, rest, ok := strings.Cut(b, "\n")
		if !ok {
			return nil, fmt.Errorf("line without end: %q", line)
		}
		name, value, text := strings.Cut(line, "=")
		if !text {
			if len(rest) < 8 {
				return nil, fmt.Errorf("%s: no length", name)
			}
			n := binary.LittleEndian.Uint64([]byte(rest[:8]))
			rest = rest[8:]
			if uint64(len(rest)) <= n || rest[n] != '\n' {
				return nil, fmt.Errorf("%s: length %d of %d, or no end", name, n, len(rest))
			}
			value, rest = rest[:n], rest[n+1:]
		}
		if !validName.MatchString(name) {
			return nil, fmt.Errorf("invalid field name %q", name)
		}
		r = append(r, field{name, value})
		b = rest
	}
	return r, nil
}

func TestFieldName(t *testing.T) {
	for key, want := range map[string]string{
		"pod":                   "CRIGUARD_POD",
		"emptied_in":            "CRIGUARD_EMPTIED_IN",
		"runtime.name":          "CRIGUARD_RUNTIME_NAME",
		"Already UP-2":          "CRIGUARD_ALREADY_UP_2",
		"":                      "CRIGUARD_",
		"größe":                 "CRIGUARD_GR__E",
		"a\nMESSAGE=x":          "CRIGUARD_A_MESSAGE_X",
		strings.Repeat("k", 99): "CRIGUARD_" + strings.Repeat("K", 55),
	} {
		if got := fieldName(key); got != want {
			t.Errorf("fieldName(%q) = %q, want %q", key, got, want)
		}
	}
}

func TestAppendField(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"plain", "a=b c", "X=a=b c\n"},
		{"empty", "", "X=\n"},
		{"lines", "a\nb", "X\n\x03\x00\x00\x00\x00\x00\x00\x00a\nb\n"},
		{"only a newline", "\n", "X\n\x01\x00\x00\x00\x00\x00\x00\x00\n\n"},
		{"not UTF-8", "a\xff\xfe", "X=a�\n"},
		{"long", strings.Repeat("x", maxValue+1), "X=" + strings.Repeat("x", maxValue-3) + "…\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(appendField(nil, "X", c.value)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAppendText(t *testing.T) {
	for value, want := range map[string]string{
		"plain":      " k=plain",
		"ns/pod-1":   " k=ns/pod-1",
		"größe":      " k=größe",
		"":           ` k=""`,
		"two words":  ` k="two words"`,
		"a=b":        ` k="a=b"`,
		"a\nb":       ` k="a\nb"`,
		`say "x"`:    ` k="say \"x\""`,
		`C:\x`:       ` k="C:\\x"`,
		"a\xffb":     ` k="a\xffb"`,
		"tty\x1b[0m": ` k="tty\x1b[0m"`,
	} {
		if got := string(appendText(nil, "k", value)); got != want {
			t.Errorf("appendText(%q) = %q, want %q", value, got, want)
		}
	}
}

// For any pod name, the journal parses exactly one field, which is ours.
func FuzzAppendField(f *testing.F) {
	for _, s := range [][2]string{
		{"pod", "default/a"}, {"pod", "a\nMESSAGE=gone\nPRIORITY=0"}, {"", ""}, {"\xff", "\xff\n"},
		{"_x", "="}, {"k", strings.Repeat("é", maxValue)}, {"a\nb", "\n\n"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		r, err := parseRecord(string(appendField(nil, fieldName(key), value)))
		if err != nil {
			t.Fatal(err)
		}
		if len(r) != 1 || !strings.HasPrefix(r[0].name, fieldPrefix) {
			t.Fatalf("read as %q", r)
		}
		if got := r[0].value; len(got) > maxValue || !utf8.ValidString(got) {
			t.Errorf("value %q", got)
		} else if utf8.ValidString(value) && len(value) <= maxValue && got != value {
			t.Errorf("value %q, want %q", got, value)
		}
		if text := string(appendText(nil, key, value)); strings.ContainsAny(text, "\n\r\x00\x1b") {
			t.Errorf("text %q", text)
		}
	})
}
