package guard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// historyName is the file's, in the history's directory. It holds one pass per line. Once it
// has twice as many lines as passes are kept it is written anew.
const historyName = "history.jsonl"

// maxHistoryLine bounds a line that is read back: a pass with a ranked table of
// a thousand pods is well below.
const maxHistoryLine = 4 << 20

// maxHistoryFile is from what size on the file is written anew, though it has few lines,
// once it has doubled.
const maxHistoryFile = 8 << 20

// historyFile is the file of a history. What is in it when power fails is there afterwards:
// a node that hangs is often ended by that.
type historyFile struct {
	dir   string
	file  *os.File // open to append; nil = to be written anew
	lines int
	size  int64
	least int64 // its size when it was written anew
}

// load reads the newest passes. A file that is torn is written anew with the next save.
func (f *historyFile) load(keep int) ([]Pass, error) {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, fmt.Errorf("create history directory: %w", err)
	}
	path := filepath.Join(f.dir, historyName)
	old, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	passes, lines, size := readHistory(old, keep)
	st, err := old.Stat()
	if err = errors.Join(err, old.Close()); err != nil {
		return passes, fmt.Errorf("read history: %w", err)
	}
	if size != st.Size() {
		return passes, nil
	}
	return passes, f.open(lines, size)
}

// readHistory reads passes, skipping lines that are torn or foreign, and counts the lines
// that are neither and their bytes.
func readHistory(r io.Reader, keep int) (passes []Pass, lines int, size int64) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxHistoryLine)
	for sc.Scan() {
		var p Pass
		if json.Unmarshal(sc.Bytes(), &p) != nil || p.ID == 0 {
			continue
		}
		lines, size = lines+1, size+int64(len(sc.Bytes())+1)
		if passes = append(passes, p); len(passes) > keep {
			passes = append(passes[:0], passes[1:]...)
		}
	}
	return passes, lines, size
}

// save appends the newest passes, or writes all of them where that is due.
func (f *historyFile) save(all []Pass, news, keep int) error {
	lines, err := encodeLines(all[len(all)-news:])
	if err != nil {
		return err
	}
	size := f.size + int64(len(lines))
	if f.file == nil || f.lines+news > 2*keep || size > max(maxHistoryFile, 2*f.least) {
		return f.rewrite(all)
	}
	if news == 0 {
		return nil
	}
	_, err = f.file.Write(lines)
	if err = errors.Join(err, f.file.Sync()); err != nil {
		_ = f.close() // it may end in the middle of a line
		return fmt.Errorf("append to history: %w", err)
	}
	f.lines, f.size = f.lines+news, size
	return nil
}

// rewrite writes passes to a new file and goes on in that one.
func (f *historyFile) rewrite(all []Pass) error {
	lines, err := encodeLines(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("create history directory: %w", err)
	}
	if err := replaceFile(f.dir, historyName, lines, synced); err != nil {
		return err
	}
	_ = f.close()
	return f.open(len(all), int64(len(lines)))
}

// open goes on in the file that is there.
func (f *historyFile) open(lines int, size int64) (err error) {
	f.file, err = os.OpenFile(filepath.Join(f.dir, historyName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		f.file = nil
		return fmt.Errorf("open history: %w", err)
	}
	f.lines, f.size, f.least = lines, size, size
	return nil
}

func (f *historyFile) close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}

func encodeLines(passes []Pass) ([]byte, error) {
	var buf bytes.Buffer
	for i := range passes {
		line, err := json.Marshal(&passes[i])
		if err != nil {
			return nil, fmt.Errorf("encode pass: %w", err)
		}
		buf.Write(append(line, '\n'))
	}
	return buf.Bytes(), nil
}
