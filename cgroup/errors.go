package cgroup

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ErrUnsupported says that this kernel, this layout or this process's
// capabilities lack a feature. The text around it names the feature and its floor.
var ErrUnsupported = errors.New("not supported here")

// ErrGone says that a cgroup was removed, or a process ended. It is an
// fs.ErrNotExist, too.
var ErrGone error = goneError{}

type goneError struct{}

func (goneError) Error() string        { return "it is gone" }
func (goneError) Is(target error) bool { return target == fs.ErrNotExist }

// gone turns what the kernel says of a removed cgroup or an ended process into
// ErrGone: ENOENT when a name is looked up, ENODEV when a descriptor that was kept
// is used, ESRCH of a process. Other errors stay as they are.
func gone(err error) error {
	for _, e := range []error{unix.ENOENT, unix.ENODEV, unix.ESTALE, unix.ESRCH} {
		if errors.Is(err, e) {
			return ErrGone
		}
	}
	return err
}

// unsupported names what is missing and since when there is such a thing.
func unsupported(feature, floor string) error {
	return fmt.Errorf("%s: %w: needs %s", feature, ErrUnsupported, floor)
}
