package guard

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a configuration's text. Reading TOML takes time that grows with the
// third power of its depth: a small file could keep the service from starting.
const (
	maxDepth    = 16 // of tables and lists in each other
	maxKeyParts = 16 // of a dotted key
)

// keyLines is the line of each table and key, by its path.
type keyLines map[string]int

// of finds the line of a key, or of what it is in; 0 = not known.
func (l keyLines) of(key string) int {
	for key != "" {
		if line, ok := l[key]; ok {
			return line
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return 0
}

// at gives the key that begins in a line; "" = none does.
func (l keyLines) at(line int) string {
	longest := ""
	for _, key := range sortedKeys(l) {
		if l[key] == line && len(key) > len(longest) {
			longest = key
		}
	}
	return longest
}

// bound is what a text goes beyond.
type bound struct {
	line int // 0 = it stays within
	rule string
}

// findKeyLines finds where the tables and keys of a TOML text are, those within
// inline tables excepted. It goes through the text without reading values, and
// ends where that is not TOML, or beyond the bounds.
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
	table    string         // the path of the table that keys belong to
	elements map[string]int // how many a list of tables has so far
	beyond   bound
}

// peek is the next byte; 0 = none.
func (s *keyScanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// next takes a byte.
func (s *keyScanner) next() {
	if s.peek() == '\n' {
		s.line++
	}
	s.at++
}

// blank passes over these bytes; false at the end of the text.
func (s *keyScanner) blank(bytes string) bool {
	for s.at < len(s.text) && strings.IndexByte(bytes, s.peek()) >= 0 {
		s.next()
	}
	return s.at < len(s.text)
}

// skipLine goes to the end of the line.
func (s *keyScanner) skipLine() {
	for s.at < len(s.text) && s.peek() != '\n' {
		s.at++
	}
}

// header reads [table] or [[list of tables]].
func (s *keyScanner) header() {
	s.at++
	list := s.peek() == '['
	if list {
		s.at++
	}
	line, parts := s.line, s.key()
	s.table = ""
	for i, part := range parts {
		s.table = joinKey(s.table, part)
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

// pair reads a key and passes over its value.
func (s *keyScanner) pair() {
	line, path := s.line, s.table
	parts := s.key()
	for i, part := range parts {
		path = joinKey(path, part)
		s.found(path, line, i == len(parts)-1)
	}
	s.value()
}

// found notes where a path is: where it is written itself, or else where the
// first is that it is a part of.
func (s *keyScanner) found(path string, line int, itself bool) {
	if _, known := s.lines[path]; itself || !known {
		s.lines[path] = line
	}
}

// key reads a dotted key.
func (s *keyScanner) key() (parts []string) {
	for {
		s.blank(" \t")
		from := s.at
		if c := s.peek(); c == '"' || c == '\'' {
			s.quoted()
			part, err := strconv.Unquote(s.text[from:s.at]) // Go's escapes, of which TOML has some
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

// value passes over a value, which ends with its line but for brackets and
// quotes that are still open.
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

// quoted passes over a string, of one line or of many.
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
			for range len(end) - 1 { // a long one may end with quotes of its own
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

// within holds a number to its bound.
func (s *keyScanner) within(n, most int, what, of string) bool {
	if n > most {
		s.beyond = bound{s.line, fmt.Sprintf("%s must have at most %d %s", what, most, of)}
	}
	return n <= most
}
