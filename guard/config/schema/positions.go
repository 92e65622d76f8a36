package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Limits of a configuration's text. The time to parse TOML grows with the third power of its depth,
// so a small file could keep the service from starting.
const (
	maxDepth    = 16 // nesting of tables and lists
	maxKeyParts = 16 // parts of a dotted key
)

// keyLines maps the path of each table and key to its line.
type keyLines map[string]int

// enclosing returns the value of a key or of the innermost table around it.
func enclosing[V any](byPath map[string]V, key string) (v V, ok bool) {
	for key != "" {
		if v, ok = byPath[key]; ok {
			return v, true
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return v, false
}

// at returns the key that begins on a line, or "".
func (l keyLines) at(line int) string {
	longest := ""
	for _, key := range slices.Sorted(maps.Keys(l)) {
		if l[key] == line && len(key) > len(longest) {
			longest = key
		}
	}
	return longest
}

// bound is a limit that a text exceeds.
type bound struct {
	line int // 0: no limit exceeded
	rule string
}

// findKeyLines finds the lines of the tables and keys in a TOML text, except those inside inline
// tables. It scans the text without parsing values and stops where the text is not TOML or exceeds
// a limit.
func findKeyLines(text string) (keyLines, bound) {
	s := keyScanner{text: text, line: 1, lines: keyLines{}, elements: map[string]int{}}
	for ; s.beyond.line == 0 && s.blank(" \t\r\n"); s.skipLine() {
		if s.peek() == '[' {
			s.header()
		} else {
			s.pair()
		}
	}
	return s.lines, s.beyond
}

type keyScanner struct {
	text     string
	at       int
	line     int
	lines    keyLines
	table    string         // path of the current table
	elements map[string]int // number of elements in each list of tables so far
	beyond   bound
}

// peek returns the next byte, or 0 at the end.
func (s *keyScanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// next consumes a byte.
func (s *keyScanner) next() {
	if s.peek() == '\n' {
		s.line++
	}
	s.at++
}

// blank skips the given bytes; it returns false at the end of the text.
func (s *keyScanner) blank(bytes string) bool {
	for s.at < len(s.text) && strings.IndexByte(bytes, s.peek()) >= 0 {
		s.next()
	}
	return s.at < len(s.text)
}

// skipLine moves to the end of the line.
func (s *keyScanner) skipLine() {
	for s.at < len(s.text) && s.peek() != '\n' {
		s.at++
	}
}

// header scans [table] or [[list of tables]].
func (s *keyScanner) header() {
	s.at++
	list := s.peek() == '['
	if list {
		s.at++
	}
	line, parts := s.line, s.key()
	s.table = ""
	for i, part := range parts {
		s.table = JoinKey(s.table, part)
		s.found(s.table, line, i == len(parts)-1 && !list)
		if list && i == len(parts)-1 {
			s.elements[s.table]++
		}
		if n := s.elements[s.table]; n > 0 {
			s.table = fmt.Sprintf("%s[%d]", s.table, n)
			s.found(s.table, line, false)
		}
	}
}

// pair scans a key and skips its value.
func (s *keyScanner) pair() {
	line, path := s.line, s.table
	parts := s.key()
	for i, part := range parts {
		path = JoinKey(path, part)
		s.found(path, line, i == len(parts)-1)
	}
	s.value()
}

// found records the line of a path: the line that defines it or, failing that, the first line that
// mentions a key below it.
func (s *keyScanner) found(path string, line int, itself bool) {
	if _, known := s.lines[path]; itself || !known {
		s.lines[path] = line
	}
}

// key scans a dotted key.
func (s *keyScanner) key() (parts []string) {
	for {
		s.blank(" \t")
		from := s.at
		if c := s.peek(); c == '"' || c == '\'' {
			s.quoted()
			part, err := strconv.Unquote(s.text[from:s.at]) // Go's escape sequences; TOML has a subset of them
			if c == '\'' || err != nil {
				part = strings.Trim(s.text[from:s.at], string(c))
			}
			parts = append(parts, part)
		} else {
			for s.at < len(s.text) && strings.IndexByte(" \t\r\n.=[]{},#\"'", s.peek()) < 0 {
				s.at++
			}
			if s.at > from {
				parts = append(parts, s.text[from:s.at])
			}
		}
		if s.blank(" \t"); s.peek() != '.' || !s.within(len(parts)+1, maxKeyParts, "keys", "parts") {
			return parts
		}
		s.at++
	}
}

// value skips a value. It ends at the end of the line unless brackets or quotes are still open.
func (s *keyScanner) value() {
	depth, parts := 0, 1
	for s.at < len(s.text) && s.beyond.line == 0 {
		switch s.peek() {
		case '#':
			s.skipLine()
			continue
		case '"', '\'':
			s.quoted()
			continue
		case '\n':
			if depth <= 0 {
				return
			}
			parts = 1
		case '[', '{':
			depth++
			parts = 1
			s.within(depth, maxDepth, "lists and tables", "levels")
		case ']', '}':
			depth--
			parts = 1
		case '=', ',':
			parts = 1
		case '.':
			parts++
			s.within(parts, maxKeyParts, "keys", "parts")
		}
		s.next()
	}
}

// quoted skips a single-line or multi-line string.
func (s *keyScanner) quoted() {
	quote := s.text[s.at]
	end := string(quote)
	if long := strings.Repeat(end, 3); strings.HasPrefix(s.text[s.at:], long) {
		end = long
	}
	s.at += len(end)
	for s.at < len(s.text) {
		switch {
		case strings.HasPrefix(s.text[s.at:], end):
			s.at += len(end)
			for range len(end) - 1 { // a multi-line string may end with quotes of its own
				if s.peek() == quote {
					s.at++
				}
			}
			return
		case s.peek() == '\n' && len(end) == 1:
			return
		case s.peek() == '\\' && quote == '"':
			s.at++
		}
		s.next()
	}
	s.at = min(s.at, len(s.text))
}

// within records an exceeded limit; it reports whether n is within the limit.
func (s *keyScanner) within(n, most int, what, of string) bool {
	if n > most {
		s.beyond = bound{s.line, fmt.Sprintf("%s must have at most %d %s", what, most, of)}
	}
	return n <= most
}

// JoinKey appends a key to the path of its table. It quotes keys that are not bare keys in TOML.
func JoinKey(path, key string) string {
	if !isBare(key) {
		key = strconv.Quote(key)
	}
	return strings.TrimPrefix(path+"."+key, ".")
}

// isBare reports whether TOML allows a key without quotes.
func isBare(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// SplitKey splits the path of a key into its table and its name.
func SplitKey(path string) (table, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
