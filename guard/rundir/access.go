package rundir

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Access defines who may read a file that criguard writes. Only root may write it.
type Access struct {
	Mode fs.FileMode
	gid  int // group that may read it; -1: the process's group
}

// forRoot is for files that no other user needs. Any user who can open a lock can also take it.
func forRoot() Access { return Access{0o600, -1} }

// ForAll is for files that other programs on the node read.
func ForAll() Access { return Access{0o644, -1} }

// ForOperators is for files with pod names and operators' commands. Users of the control socket may
// read them.
func ForOperators() Access {
	if gid, ok := OperatorsGroup(); ok {
		return Access{0o640, gid}
	}
	return forRoot()
}

// operators is the group that, besides root, may use the control socket and read the service's
// state. Without this group, only root may.
const operators = "criguard"

// OperatorsGroup looks up the group that may use the control socket.
func OperatorsGroup() (gid int, ok bool) {
	g, err := user.LookupGroup(operators)
	if err != nil {
		return -1, false
	}
	gid, err = strconv.Atoi(g.Gid)
	return gid, err == nil
}

// Apply sets a file's mode and group. A process outside the group cannot assign the file to it;
// then only root can read the file.
func (a Access) Apply(f *os.File) error {
	mode := a.Mode
	if a.gid >= 0 && f.Chown(-1, a.gid) != nil {
		mode &^= 0o070
	}
	return f.Chmod(mode)
}

// Open opens a file for reading and removes excess permissions: an older criguard may have left the
// file readable for all. On a read-only filesystem the permissions stay.
func (a Access) Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	case st.Mode().Perm()&^a.Mode != 0:
		_ = a.Apply(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

var errNotRegular = errors.New("not a regular file")
