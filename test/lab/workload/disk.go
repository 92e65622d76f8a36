package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// fill writes a file that is not sparse.
func fill(flags *flag.FlagSet, args []string) (func() error, error) {
	path := flags.String("path", "/data/fill", "file to write")
	size := flags.Int64("mib", 64, "MiB to write")
	rate := flags.Float64("rate", 0, "MiB per second; 0 is as fast as can be")
	when := flags.String("when", "", "file whose coming to wait for first; empty is none")
	return func() error {
		awaitFile(*when)
		say("fill: begins")
		return writeMiB(*path, *size, *rate)
	}, flags.Parse(args)
}

func writeMiB(name string, size int64, rate float64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	chunk := make([]byte, mib)
	for i := range chunk {
		chunk[i] = byte(i)
	}
	var failed error
	paced(rate, size, func(int64) {
		if failed == nil {
			_, failed = f.Write(chunk)
		}
	})
	return errors.Join(failed, f.Close())
}

// inodes creates empty files.
func inodes(flags *flag.FlagSet, args []string) (func() error, error) {
	dir := flags.String("dir", "/data", "where to make them")
	count := flags.Int64("count", 1000, "how many")
	rate := flags.Float64("rate", 0, "files per second; 0 is as fast as can be")
	return func() error {
		say("inodes: begins")
		var failed error
		paced(*rate, *count, func(i int64) {
			if failed == nil {
				failed = os.WriteFile(filepath.Join(*dir, fmt.Sprintf("inode-%d", i)), nil, 0o600)
			}
		})
		return failed
	}, flags.Parse(args)
}
