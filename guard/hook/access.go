package hook

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// Errors that Check returns.
var (
	errNoAnswer      = errors.New("filesystem does not answer")
	errNotExecutable = errors.New("no executable file")
)

// Access checks programs before they are run. A dead network mount blocks every access to it.
// Starting a program from such a mount blocks the whole process, not only one thread: Go waits for
// execve in a way that its garbage collector cannot interrupt (CLONE_VFORK).
type Access struct {
	Timeout time.Duration // of [Dispatcher.Check], for all programs together

	look func(path string) error

	mu       sync.Mutex
	underWay map[string]*lookup // by path
}

type lookup struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewAccess returns an Access that checks paths with look, which may hang. A nil look reads the
// file.
func NewAccess(look func(path string) error) *Access {
	if look == nil {
		look = lookAt
	}
	return &Access{Timeout: time.Second, look: look, underWay: map[string]*lookup{}}
}

// check returns an error if a program cannot be run, and errNoAnswer if its filesystem has not
// answered by ctx's deadline. However often a path is checked, at most one check of it hangs.
func (a *Access) check(ctx context.Context, path string) error {
	l := a.begin(path)
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errNoAnswer
	}
	return ctx.Err()
}

// begin joins the running check of a path, or starts one.
func (a *Access) begin(path string) *lookup {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.underWay[path]; l != nil {
		return l
	}
	l := &lookup{done: make(chan struct{})}
	a.underWay[path] = l
	go func() {
		l.err = a.look(path)
		a.mu.Lock()
		delete(a.underWay, path)
		a.mu.Unlock()
		close(l.done)
	}()
	return l
}

// lookAt reads a byte of the program, because cached attributes can outlive the file server.
func lookAt(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return errNotExecutable
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // the filesystem answered; a program need not be readable
	}
	defer func() { _ = f.Close() }()
	_, _ = f.Read(make([]byte, 1))
	return nil
}
