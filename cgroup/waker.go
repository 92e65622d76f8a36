package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Waker waits for everything that wakes the guard: one epoll in one goroutine. On v1, a second
// goroutine registers memory thresholds, which takes the kernel milliseconds. Its methods may be called
// from several goroutines.
type Waker struct {
	layout Layout
	epoll  int
	stop   int // eventfd that ends the loop
	queue  queue
	armer  armer
	quit   chan struct{}
	ended  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	lastKey int32
	sources map[int32]*source
	events  map[string]*source // from AddMemoryEvents, by cgroup
	pods    *source            // inotify descriptor of dirs
	dirs    dirWatch
}

// source is a descriptor in the epoll set.
type source struct {
	key  int32 // identifies it in the epoll set, because the kernel reuses descriptor numbers
	fd   int
	wake Wake
	// drain consumes the event, so that epoll does not report it again. It returns false if the
	// descriptor can report nothing more.
	drain func(fd int, events uint32) (alive bool)
}

// NewWaker starts a Waker that waits for nothing yet.
func NewWaker(l Layout) (*Waker, error) {
	w := &Waker{
		layout: l, queue: queue{out: make(chan Wake, wakeKinds)},
		armer: armer{nudge: make(chan struct{}, 1), groups: map[string]*levels{}},
		quit:  make(chan struct{}), sources: map[int32]*source{}, events: map[string]*source{}, dirs: dirWatch{fd: -1},
	}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		// Key 0 is the stop eventfd.
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, w.stop, &unix.EpollEvent{Events: unix.EPOLLIN})
		if err != nil {
			_ = unix.Close(w.stop)
		}
	}
	if err != nil {
		_ = unix.Close(w.epoll)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	w.ended.Go(w.run)
	if l.Version != V2 {
		w.ended.Go(w.arm)
	}
	return w, nil
}

// Wakes returns the channel of wake-ups. Close closes it.
func (w *Waker) Wakes() <-chan Wake { return w.queue.out }

func (w *Waker) run() {
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // unreachable: the descriptor stays open until run returns
		}
		for _, e := range events[:n] {
			if e.Fd == 0 {
				return
			}
			if wake, ok := w.happened(e); ok {
				w.queue.put(wake)
			}
		}
		// The receiver of the wake-up then runs on this thread, which already has a CPU. Another thread
		// would have to wait for one, which takes milliseconds on a busy node.
		runtime.Gosched()
	}
}

// happened consumes one event of its source.
func (w *Waker) happened(e unix.EpollEvent) (Wake, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sources[e.Fd]
	if s == nil {
		return "", false // the source was dropped after the event
	}
	if s == w.pods {
		return s.wake, w.dirs.take()
	}
	if !s.drain(s.fd, e.Events) {
		w.drop(s)
	}
	return s.wake, true
}

// add puts a source into the epoll set and takes ownership of its descriptor, which it closes on error.
func (w *Waker) add(s *source, events uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.addLocked(s, events)
}

func (w *Waker) addLocked(s *source, events uint32) error {
	if w.closed {
		_ = unix.Close(s.fd)
		return os.ErrClosed
	}
	w.lastKey++
	s.key = w.lastKey
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: events, Fd: s.key}); err != nil {
		_ = unix.Close(s.fd)
		return fmt.Errorf("wait for descriptor: %w", err)
	}
	w.sources[s.key] = s
	return nil
}

// drop removes a source from the epoll set and closes it, once. The caller holds w.mu.
func (w *Waker) drop(s *source) {
	if w.sources[s.key] != s {
		return
	}
	delete(w.sources, s.key)
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
	_ = unix.Close(s.fd)
}

// Close ends the goroutines and closes every descriptor and the channel of wake-ups.
func (w *Waker) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		w.ended.Wait()
		return
	}
	w.closed = true
	w.mu.Unlock()
	close(w.quit)
	one := [8]byte{1}
	_, _ = unix.Write(w.stop, one[:])
	w.ended.Wait()
	w.armer.mu.Lock()
	for _, g := range w.armer.groups {
		w.forget(g)
	}
	w.armer.mu.Unlock()
	w.dirs.close()
	w.mu.Lock()
	for _, s := range w.sources {
		w.drop(s)
	}
	w.mu.Unlock()
	_ = unix.Close(w.stop)
	_ = unix.Close(w.epoll)
	w.queue.close()
}
