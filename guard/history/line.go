package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// errDamagedLine reports a line that is not a pass of this version. Readers skip it.
var errDamagedLine = errors.New("damaged line")

// lineReader reads whole lines and skips lines that are too long.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
	end int64 // offset after the last line
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line without its newline, and its offset; a nil line if it is too long. The line is
// valid until the next call. After the last line it returns io.EOF. Text without a newline at the end is not
// returned, but counts in end.
func (l *lineReader) next() (line []byte, at int64, err error) {
	at, l.buf = l.end, l.buf[:0]
	tooLong := false
	for {
		part, err := l.r.ReadSlice('\n')
		l.end += int64(len(part))
		if tooLong = tooLong || len(l.buf)+len(part) > maxHistoryLine; !tooLong {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, at, err
		case tooLong:
			return nil, at, nil
		}
		return l.buf[:len(l.buf)-1], at, nil
	}
}

// lineAt locates a pass in the file.
type lineAt struct {
	at   int64
	id   uint64
	time int64 // in nanoseconds since 1970; 0 = unknown
	size int32
	long bool // its ranking has more than the first rows
	cut  bool // read it with only the first rows
}

// indexLines returns the newest n passes of a file, and counts the lines in which it found no pass.
func indexLines(r io.Reader, n int) (passes []lineAt, unknown int, err error) {
	lines := newLineReader(r)
	var found []lineAt // a ring once it is full
	next := 0
	for {
		line, at, err := lines.next()
		if errors.Is(err, io.EOF) {
			return append(found[next:len(found):len(found)], found[:next]...), unknown, nil
		}
		if err != nil {
			return nil, 0, err
		}
		l, ok := parseHead(line)
		if l.at = at; !ok {
			unknown++
			continue
		}
		if len(found) < n {
			found = append(found, l)
		} else if n > 0 {
			found[next] = l
			next = (next + 1) % n
		}
	}
}

// parseHead parses the ID and time of an encoded pass, which are its first fields, and counts the rows of
// its ranking.
func parseHead(line []byte) (l lineAt, ok bool) {
	l.size = int32(len(line)) //nolint:gosec // at most maxHistoryLine
	if !bytes.HasSuffix(line, []byte{'}'}) {
		return l, false
	}
	l.long = bytes.Count(line, []byte(rowKey)) > firstRanked
	if id, rest, found := bytes.Cut(bytes.TrimPrefix(line, []byte(`{"id":`)), []byte{','}); found {
		if n, err := strconv.ParseUint(string(id), 10, 64); err == nil && n > 0 && len(id) < len(line)-6 {
			l.id = n
		}
		if text, ok := bytes.CutPrefix(rest, []byte(`"time":"`)); ok && l.id > 0 {
			text, _, _ = bytes.Cut(text, []byte{'"'})
			t, err := time.Parse(time.RFC3339Nano, string(text))
			l.time = t.UnixNano()
			return l, err == nil
		}
	}
	var head struct {
		ID   uint64    `json:"id"`
		Time time.Time `json:"time"`
	}
	if json.Unmarshal(line, &head) != nil || head.ID == 0 {
		return l, false
	}
	l.id = head.ID
	if !head.Time.IsZero() {
		l.time = head.Time.UnixNano()
	}
	return l, true
}

// markShort marks all but the newest whole long rankings to be cut.
func markShort(lines []lineAt, whole int) {
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].long {
			whole--
			lines[i].cut = whole < 0
		}
	}
}

// read reads the line into buf, which it may replace. It returns errDamagedLine if the line is not a
// pass of this version.
func (l lineAt) read(r io.ReaderAt, buf []byte) ([]byte, error) {
	if cap(buf) < int(l.size) {
		buf = make([]byte, l.size)
	}
	buf = buf[:l.size]
	if _, err := r.ReadAt(buf, l.at); err != nil {
		return nil, fmt.Errorf("read pass %d: %w", l.id, err)
	}
	// One line of another shape would make a client reject the whole answer.
	var shape struct {
		At         api.Duration      `json:"at"`
		Conditions policy.Conditions `json:"conditions"`
	}
	if err := json.Unmarshal(buf, &shape); err != nil {
		return nil, fmt.Errorf("read pass %d: %w: %w", l.id, errDamagedLine, err)
	}
	if !l.cut {
		return buf, nil
	}
	short, err := shortenLine(buf)
	if err != nil {
		return nil, fmt.Errorf("read pass %d: %w: %w", l.id, errDamagedLine, err)
	}
	return short, nil
}
