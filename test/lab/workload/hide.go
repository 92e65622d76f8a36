package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hide writes files that a careless directory walk does not find. Where many names hide them, half of the bytes are in
// the first file and half in the last: filesystems list names in different orders.
func hide(flags *flag.FlagSet, args []string) (func() error, error) {
	dir := flags.String("dir", "/data", "where to write")
	size := flags.Int64("mib", 64, "MiB to write")
	how := flags.String("how", "deep", "deep: below a path longer than PATH_MAX; links: behind 200,000 hard links; entries: behind 230,000 empty files; "+
		"swap: in a directory that is exchanged with a symbolic link all the time")
	target := flags.String("target", "/", "of the symbolic link, on the host")
	return func() error {
		say("hide: begins")
		ways := map[string]func(string, int64) error{
			"deep": hideDeep, "links": hideBehindLinks, "entries": hideBehindEntries,
			"swap": func(dir string, size int64) error { return hideBySwaps(dir, *target, size) },
		}
		way, ok := ways[*how]
		if !ok {
			return fmt.Errorf("unknown way %q", *how)
		}
		return way(*dir, *size)
	}, flags.Parse(args)
}

func hideDeep(dir string, size int64) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	name := strings.Repeat("d", 250)
	for range 20 {
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
		if err := os.Chdir(name); err != nil {
			return err
		}
	}
	return writeMiB("fill", size, 0)
}

func hideBehindLinks(dir string, size int64) error {
	if err := writeMiB(filepath.Join(dir, "A"), size/2, 0); err != nil {
		return err
	}
	for i := range 4 {
		first := filepath.Join(dir, fmt.Sprintf("a%d", i))
		if err := os.WriteFile(first, nil, 0o600); err != nil {
			return err
		}
		for j := range 50_000 { // ext4 allows at most 65,000 links per file
			if err := os.Link(first, fmt.Sprintf("%s-%d", first, j)); err != nil {
				return err
			}
		}
	}
	return writeMiB(filepath.Join(dir, "z"), size-size/2, 0)
}

func hideBehindEntries(dir string, size int64) error {
	if err := writeMiB(filepath.Join(dir, "A"), size/2, 0); err != nil {
		return err
	}
	for i := range 23 {
		sub := filepath.Join(dir, fmt.Sprintf("a%d", i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			return err
		}
		for j := range 10_000 {
			if err := os.WriteFile(filepath.Join(sub, strconv.Itoa(j)), nil, 0o600); err != nil {
				return err
			}
		}
	}
	return writeMiB(filepath.Join(dir, "z"), size-size/2, 0)
}

// hideBySwaps never returns.
func hideBySwaps(dir, target string, size int64) error {
	data, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, link); err != nil {
		return err
	}
	if err := writeMiB(filepath.Join(data, "fill"), size, 0); err != nil {
		return err
	}
	say("hide: swaps")
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, data, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
}
