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

// Bounds of looking for air-gap files.
const (
	maxAirGapDepth = 3
	maxAirGapFiles = 1000
)

// airGap finds out which images came from files on this node: no registry may
// have them. It reads tarballs, as `docker save`, `ctr images export` and the
// k3s and RKE2 releases make them, and lists of names (*.txt). A file is read
// again only when its time or size has changed, or the disk failed. The zero value is
// ready for use, from several goroutines.
type airGap struct {
	mu    sync.Mutex
	files map[string]airGapFile
}

// airGapFile is what was read from one file.
type airGapFile struct {
	modified time.Time
	size     int64
	names    []string
	note     string // why the file's names are not, or not all, known
	again    bool   // it was the disk, or a lack of descriptors, and not what the file holds
}

// names reads the files in these directories and below. Notes say which files
// could not be read; what they hold is not protected by its name. A directory that
// does not exist holds nothing. The error is the context's, when it ended before
// all was read.
func (a *airGap) names(ctx context.Context, dirs []string) (found, notes []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	files := make(map[string]airGapFile)
	for _, dir := range dirs {
		paths, note := airGapPaths(dir)
		if note != "" {
			notes = append(notes, note)
		}
		for _, path := range paths {
			f, err := a.read(ctx, path)
			if err != nil {
				return nil, nil, fmt.Errorf("read air-gap files: %w", err)
			}
			if f.note != "" {
				notes = append(notes, path+": "+f.note)
			}
			if !f.again {
				files[path] = f
			}
			found = append(found, f.names...)
		}
	}
	a.files = files
	slices.Sort(found)
	return slices.Compact(found), notes, nil
}

// airGapPaths lists the tarballs and lists in a directory and a little below.
// Links to files are followed, links to directories are not.
func airGapPaths(dir string) (paths []string, note string) {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				note = err.Error()
			}
			return fs.SkipDir
		}
		switch {
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
	if err != nil && note == "" {
		note = err.Error()
	}
	return paths, note
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

// read reads one file, unless it is known. The error is the context's alone.
func (a *airGap) read(ctx context.Context, path string) (airGapFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return airGapFile{note: err.Error()}, nil
	}
	if !info.Mode().IsRegular() {
		return airGapFile{note: "not a regular file"}, nil
	}
	f := airGapFile{modified: info.ModTime(), size: info.Size()}
	if old, ok := a.files[path]; ok && old.modified.Equal(f.modified) && old.size == f.size {
		return old, nil
	}
	file, err := os.Open(path)
	if err != nil {
		f.note, f.again = err.Error(), true
		return f, nil
	}
	defer func() { _ = file.Close() }()
	if isList(path) {
		f.names, err = readList(file)
	} else {
		f.names, err = readArchive(ctx, file)
	}
	if ctx.Err() != nil {
		return airGapFile{}, ctx.Err()
	}
	if err != nil {
		var failed *fs.PathError // what is wrong with the content is none
		f.note, f.again = err.Error(), errors.As(err, &failed)
	}
	return f, nil
}
