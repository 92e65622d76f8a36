package history

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// rankingKey starts the ranking of an encoded pass. Quotes in a string are escaped, so a name cannot contain
// it.
const rankingKey = `,"ranked":[`

// rowKey occurs once in each row of a ranking.
const rowKey = `,"usage_known":`

var errNoRanking = errors.New("no whole ranking")

// shortenLine cuts the ranking of an encoded pass after its first rows. Decoding the pass would take twenty
// times its size in locked memory.
func shortenLine(line []byte) ([]byte, error) {
	at := bytes.Index(line, []byte(rankingKey))
	if at < 0 {
		return nil, fmt.Errorf("shorten pass: %w", errNoRanking)
	}
	at += len(rankingKey)
	kept, rows, size := rowsOf(line[at:])
	if size < 0 {
		return nil, fmt.Errorf("shorten pass: %w", errNoRanking)
	}
	more, rest := rows-firstRanked, line[at+size:]
	if more <= 0 {
		return bytes.Clone(line), nil
	}
	if text, ok := bytes.CutPrefix(rest, []byte(`],"ranked_more":`)); ok {
		n, err := strconv.Atoi(string(bytes.TrimSuffix(text, []byte{'}'})))
		if err != nil {
			return nil, fmt.Errorf("shorten pass: %w: %w", errNoRanking, err)
		}
		more, rest = more+n, []byte("]}")
	}
	short := make([]byte, 0, at+kept+len(rest)+32)
	short = append(append(short, line[:at+kept]...), rest[:len(rest)-1]...)
	short = strconv.AppendInt(append(short, `,"ranked_more":`...), int64(more), 10)
	return append(short, '}'), nil
}

// rowsOf returns the length of the first rows of a JSON array of objects, the number of rows, and the length
// of all rows. The text starts after the opening bracket. size is -1 if the array has no end.
func rowsOf(text []byte) (kept, rows, size int) {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == ']' && depth == 0:
			return kept, rows, i
		case c == '}' || c == ']':
			if depth--; depth > 0 {
				continue
			}
			if rows++; rows == firstRanked {
				kept = i + 1
			}
		}
	}
	return 0, 0, -1
}
