package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of the search for air-gap files.
const (
	maxAirGapDepth = 3
	maxAirGapFiles = 1000
)

// airGapWait is how long a judgement of images waits for air-gap files. Large tarballs on a slow disk
// may take longer, and a stalled disk never answers; the read continues in the background.
const airGapWait = 30 * time.Second

// airGap finds the images that came from files on this node, because no registry may have them. It
// reads tarballs, as created by `docker save`, `ctr images export` and the k3s and RKE2 releases, and
// lists of names (*.txt). The zero value is ready, and safe for concurrent use.
type airGap struct {
	mu   sync.Mutex
	dirs map[string]*airGapDir
}

// airGapNames holds the names from the files of some directories.
type airGapNames struct {
	found []string
	// notes lists the files that could not be read; the names in them protect no image.
	notes []string
	// hold is the reason to keep all images: a directory was never read to its end. "" = none.
	hold string
	// unread means that such a directory is still being read.
	unread bool
}

// names reads the files in these directories and below. A directory that does not exist has no files.
// If one does not answer, the result of its last read counts. The error is that of the context, if it
// ended before all was read.
func (a *airGap) names(ctx context.Context, dirs []string) (airGapNames, error) {
	var all airGapNames
	for _, dir := range dirs {
		d := a.dir(dir)
		last, err := call(ctx, &d.reader, airGapWait, d.read)
		if ctx.Err() != nil {
			return airGapNames{}, fmt.Errorf("read air-gap files: %w", ctx.Err())
		}
		if err != nil {
			all.notes = append(all.notes, dir+": "+err.Error())
			if last = d.lastGood(); last == nil {
				all.hold = "air-gap directory " + dir + " does not answer"
				if errors.Is(err, ErrStalled) {
					all.unread = true
				} else {
					all.hold = "air-gap directory " + dir + " cannot be read"
				}
				continue
			}
		}
		all.found = append(all.found, last.found...)
		all.notes = append(all.notes, last.notes...)
	}
	slices.Sort(all.found)
	all.found = slices.Compact(all.found)
	return all, nil
}

func (a *airGap) dir(path string) *airGapDir {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dirs == nil {
		a.dirs = map[string]*airGapDir{}
	}
	if a.dirs[path] == nil {
		a.dirs[path] = &airGapDir{path: path}
	}
	return a.dirs[path]
}

// airGapDir is one directory of air-gap files. It re-reads a file only if its time or size has changed
// or the disk failed.
type airGapDir struct {
	path   string
	reader worker
	files  map[string]airGapFile // only the reader uses it

	mu   sync.Mutex
	last *airGapNames // from the last completed read; nil = there was no such read
}

func (d *airGapDir) lastGood() *airGapNames {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// read reads the changed files. It continues when its caller gives up, so that a large tarball needs to
// be read only once.
func (d *airGapDir) read() (*airGapNames, error) {
	var all airGapNames
	files := make(map[string]airGapFile)
	paths, note, err := airGapPaths(d.path)
	if err != nil {
		return nil, err
	}
	if note != "" {
		all.notes = append(all.notes, note)
	}
	for _, path := range paths {
		f := readAirGapFile(path, d.files)
		if f.note != "" {
			all.notes = append(all.notes, path+": "+f.note)
		}
		files[path] = f
		all.found = append(all.found, f.names...)
	}
	d.files = files
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = &all
	return &all, nil
}

// airGapFile is the result of reading one file.
type airGapFile struct {
	modified time.Time
	size     int64 // -1 = read it again
	names    []string
	note     string // why some or all of the file's names are unknown
}

// airGapPaths lists the tarballs and lists in a directory and a few levels below. It follows links to
// files, but not to directories below the first. If a directory exists and cannot be read, it returns the error: its files are
// not known. A link whose target is missing exists: its disk may not be mounted.
func airGapPaths(dir string) (paths []string, note string, err error) {
	target, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir = target
	} else if _, none := os.Lstat(dir); !errors.Is(none, fs.ErrNotExist) {
		return nil, "", err
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fs.SkipDir
		case err != nil:
			return err
		case e.IsDir():
			if strings.Count(strings.TrimPrefix(path, dir), "/") > maxAirGapDepth {
				return fs.SkipDir
			}
			return nil
		case !isArchive(path) && !isList(path):
			return nil
		case len(paths) >= maxAirGapFiles:
			note = fmt.Sprintf("%s: more than %d files: the rest is not read", dir, maxAirGapFiles)
			return fs.SkipAll
		}
		paths = append(paths, path)
		return nil
	})
	return paths, note, err
}

func isList(path string) bool { return strings.HasSuffix(path, ".txt") }

func isArchive(path string) bool {
	for _, end := range []string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.zst", ".tzst", ".tar.lz4"} {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

// readAirGapFile reads one file, unless the known result is current. If it cannot be read to its end, such as while it is replaced,
// what was known of it may still be so.
func readAirGapFile(path string, known map[string]airGapFile) airGapFile {
	old, ok := known[path]
	unread := func(err error) airGapFile { return airGapFile{note: err.Error(), names: old.names, size: -1} }
	info, err := os.Stat(path)
	if err != nil {
		return unread(err)
	}
	if !info.Mode().IsRegular() {
		return airGapFile{note: "not a regular file"}
	}
	f := airGapFile{modified: info.ModTime(), size: info.Size()}
	if ok && old.modified.Equal(f.modified) && old.size == f.size {
		return old
	}
	file, err := os.Open(path)
	if err != nil {
		return unread(err)
	}
	defer func() { _ = file.Close() }()
	if isList(path) {
		f.names, err = readList(file)
	} else {
		f.names, err = readArchive(context.Background(), file)
	}
	if err != nil {
		f.note, f.names = err.Error(), append(f.names, old.names...)
		slices.Sort(f.names)
		f.names = slices.Compact(f.names)
		if _, failed := errors.AsType[*fs.PathError](err); failed { // of the disk: an error in the content is none
			f.size = -1
		}
	}
	return f
}
