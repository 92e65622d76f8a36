package schema

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxFile limits the size of a file, in bytes.
const maxFile = 256 << 10

// File is a file's text, or the mistake that prevents reading it.
type File struct {
	Name string
	Text []byte
	Err  *Error
}

// ReadFile reads a file of at most 256 KiB.
func ReadFile(path string) File {
	f, err := os.Open(path)
	if err != nil {
		return File{Name: path, Err: Unreadable(path, err)}
	}
	defer func() { _ = f.Close() }()
	return ReadText(path, f)
}

// ReadText reads a text of at most 256 KiB; name stands for it in errors.
func ReadText(name string, r io.Reader) File {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	switch {
	case err != nil:
		return File{Name: name, Err: Unreadable(name, err)}
	case len(b) > maxFile:
		return File{Name: name, Err: &Error{File: name, Rule: fmt.Sprintf("must be at most %d KiB", maxFile>>10), Hint: "this is probably not a configuration file"}}
	}
	return File{Name: name, Text: b}
}

// Unreadable returns the mistake of a file or directory that cannot be read.
func Unreadable(file string, err error) *Error {
	cause := err
	var path *fs.PathError
	if errors.As(err, &path) {
		cause = path.Err // the message already contains the path
	}
	return &Error{File: file, Rule: "cannot be read: " + cause.Error(), Hint: "name a file that the service can read", cause: err}
}
