package systemd

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits for a record, so that it always fits into a datagram: the smallest send buffer of a kernel is
// 160 KiB.
const (
	maxName   = 64 // the journal refuses longer names
	maxValue  = 8 << 10
	maxRecord = 64 << 10
)

// fieldPrefix precedes the name of each of our own fields.
const fieldPrefix = "CRIGUARD_"

// fieldName derives a valid field name from an attribute's key: CRIGUARD_ and the key in upper case,
// with an underscore for each character that the journal does not allow.
func fieldName(key string) string {
	var b strings.Builder
	b.WriteString(fieldPrefix)
	for _, r := range key {
		if b.Len() == maxName {
			break
		}
		switch {
		case 'a' <= r && r <= 'z':
			r += 'A' - 'a'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		default:
			r = '_'
		}
		b.WriteByte(byte(r))
	}
	return b.String()
}

// appendField adds a field in the journal's native protocol: "NAME=value", or, for a value with
// newlines, the name, the length as 64 bits little endian, and the bytes. name must be valid. value is
// converted to valid UTF-8 and cut to maxValue.
func appendField(b []byte, name, value string) []byte {
	value = cut(strings.ToValidUTF8(value, "�"), maxValue)
	b = append(b, name...)
	if strings.Contains(value, "\n") {
		b = append(b, '\n')
		b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	} else {
		b = append(b, '=')
	}
	b = append(b, value...)
	return append(b, '\n')
}

// appendText adds " key=value" to a message. It quotes the value if it would not read as one word.
func appendText(b []byte, key, value string) []byte {
	b = append(b, ' ')
	b = appendWord(b, key)
	b = append(b, '=')
	return appendWord(b, value)
}

func appendWord(b []byte, s string) []byte {
	s = cut(s, maxValue)
	if needsQuotes(s) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

func needsQuotes(s string) bool {
	if s == "" {
		return true
	}
	for _, r := range s {
		if r == ' ' || r == '"' || r == '=' || r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}
