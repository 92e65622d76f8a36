package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/criguard/criguard/guard/rundir"
)

// FileName is the name of the history file, which holds one pass per line. It is compacted when it has twice
// as many lines as passes are kept.
const FileName = "history.jsonl"

// maxHistoryLine is the longest line that is read, in bytes. A pass with a ranking of a thousand pods is far
// shorter.
const maxHistoryLine = 4 << 20

// maxFile is the size from which the file is also compacted once it has doubled, even if it has few lines.
const maxFile = 8 << 20

// file is the history file. Saved passes survive a power failure, because a node that hangs is often
// power-cycled.
type file struct {
	dir     string
	readers rundir.Access
	file    *os.File // open for appending; nil = not open
	lines   int
	size    int64
	least   int64    // size when it was opened or compacted
	skipped []lineAt // the damaged lines that load skipped
	unknown int      // how many more have no ID
}

func (f *file) path() string { return filepath.Join(f.dir, FileName) }

// load reads the newest passes, and counts the older passes of the file that are kept.
func (f *file) load(keep int) (records []record, older int, last uint64, err error) {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, 0, 0, fmt.Errorf("create history directory: %w", err)
	}
	old, err := f.readers.Open(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, nil
	} else if err != nil {
		return nil, 0, 0, fmt.Errorf("read history: %w", err)
	}
	defer func() { _ = old.Close() }()
	lines, unknown, err := indexLines(old, keep)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read history: %w", err)
	}
	f.unknown = unknown
	for _, l := range lines {
		last = max(last, l.id)
	}
	records, older, err = f.newest(old, lines)
	return records, older, last, err
}

// newest reads the newest passes, and returns them oldest first with the number of older ones. On an error it returns those that it
// has read.
func (f *file) newest(from io.ReaderAt, lines []lineAt) (records []record, older int, err error) {
	defer func() { slices.Reverse(records) }()
	older = len(lines)
	size := 0
	for older > 0 && len(records) < recentPasses && size < recentBytes {
		l := lines[older-1]
		if size += int(l.size); len(records) > 0 && size > recentBytes {
			break
		}
		older--
		r := record{id: l.id, time: time.Unix(0, l.time)}
		if r.line, err = l.read(from, nil); err != nil {
			if errors.Is(err, errDamagedLine) {
				f.skipped = append(f.skipped, l)
				continue
			}
			return records, older, fmt.Errorf("read history: %w", err)
		}
		if l.long {
			if r.short, err = shortenLine(r.line); err != nil {
				continue
			}
		}
		records = append(records, r)
	}
	return records, older, nil
}

// save appends the newest lines, or all lines if the file is empty. It reports whether they were written,
// and compacts a file that has grown too long.
func (f *file) save(all [][]byte, fresh, keep int) (written bool, err error) {
	if err := f.open(); err != nil {
		return false, err
	}
	if f.size == 0 {
		fresh = len(all)
	}
	if err := f.append(all[len(all)-fresh:]); err != nil {
		return false, err
	}
	if f.lines > 2*keep || f.size > max(maxFile, 2*f.least) {
		return true, f.compact(keep)
	}
	return true, nil
}

// open opens the file for appending, unless the open file is still the one at the path.
func (f *file) open() error {
	if f.file != nil {
		is, err := f.file.Stat()
		if at, atErr := os.Lstat(f.path()); err == nil && atErr == nil && os.SameFile(is, at) {
			return nil
		}
		_ = f.close() // the file was removed or replaced
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("create history directory: %w", err)
	}
	file, err := os.OpenFile(f.path(), os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, f.readers.Mode) // like each reader
	if err != nil {
		return fmt.Errorf("open history: %w", err)
	}
	if err = f.readers.Apply(file); err == nil {
		err = f.measure(file)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("open history: %w", err)
	}
	f.file = file
	return nil
}

// measure counts the lines of the file and truncates an incomplete last line.
func (f *file) measure(file *os.File) error {
	r := newLineReader(io.NewSectionReader(file, 0, 1<<62))
	lines, size := 0, int64(0)
	for {
		_, _, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		lines, size = lines+1, r.end
	}
	if size != r.end {
		if err := file.Truncate(size); err != nil {
			return err
		}
	}
	f.lines, f.size, f.least = lines, size, size
	return nil
}

// append adds all of the lines to the file or none.
func (f *file) append(lines [][]byte) error {
	if len(lines) == 0 {
		return nil
	}
	text := append(bytes.Join(lines, []byte{'\n'}), '\n')
	_, err := f.file.Write(text)
	if err = errors.Join(err, f.file.Sync()); err != nil {
		if f.file.Truncate(f.size) != nil {
			_ = f.close() // the next open truncates the incomplete line
		}
		return fmt.Errorf("append to history: %w", err)
	}
	f.lines, f.size = f.lines+len(lines), f.size+int64(len(text))
	return nil
}

// compact writes the kept passes to a new file and continues with that one.
func (f *file) compact(keep int) error {
	old, err := f.readers.Open(f.path())
	if err != nil {
		return fmt.Errorf("compact history: %w", err)
	}
	defer func() { _ = old.Close() }()
	lines, _, err := indexLines(old, keep)
	if err != nil {
		return fmt.Errorf("compact history: %w", err)
	}
	markShort(lines, wholeRankings)
	if err := f.readers.ReplaceBy(f.dir, FileName, rundir.Synced, func(w io.Writer) error { return copyLines(w, old, lines) }); err != nil {
		return fmt.Errorf("compact history: %w", err)
	}
	_ = f.close()
	return f.open()
}

// copyLines copies lines of a file and skips damaged ones.
func copyLines(w io.Writer, from io.ReaderAt, lines []lineAt) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var buf []byte
	for _, l := range lines {
		line, err := l.read(from, buf)
		if errors.Is(err, errDamagedLine) {
			continue
		}
		if err != nil {
			return err
		}
		buf = line[:0]
		_, _ = out.Write(line)
		_ = out.WriteByte('\n') // Flush returns the first error
	}
	return out.Flush()
}

func (f *file) close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}
