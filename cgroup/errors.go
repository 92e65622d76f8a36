package cgroup

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ErrUnsupported means that the kernel, the cgroup layout or the process's capabilities lack a feature.
// The wrapping text names the feature and its minimum version.
var ErrUnsupported = errors.New("not supported here")

// ErrGone means that a cgroup was removed or a process ended. It also matches fs.ErrNotExist.
var ErrGone error = goneError{}

type goneError struct{}

func (goneError) Error() string        { return "it is gone" }
func (goneError) Is(target error) bool { return target == fs.ErrNotExist }

// gone maps the kernel's errors for a removed cgroup or an ended process to ErrGone: ENOENT from a
// lookup, ENODEV or ESTALE from a descriptor that was kept open, ESRCH for a process. It returns other
// errors unchanged.
func gone(err error) error {
	for _, e := range []error{unix.ENOENT, unix.ENODEV, unix.ESTALE, unix.ESRCH} {
		if errors.Is(err, e) {
			return ErrGone
		}
	}
	return err
}

// unsupported names the missing feature and what it needs.
func unsupported(feature, floor string) error {
	return fmt.Errorf("%s: %w: needs %s", feature, ErrUnsupported, floor)
}
