package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Waker waits for all that wakes the guard: one epoll in one goroutine, and on v1
// a second one that registers memory thresholds, which the kernel takes
// milliseconds for. Its methods may be called from several goroutines.
type Waker struct {
	layout Layout
	epoll  int
	stop   int // an eventfd that ends the loop
	queue  queue
	armer  armer
	quit   chan struct{}
	ended  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	lastKey int32
	sources map[int32]*source
	events  map[string]*source // of AddMemoryEvents, by cgroup
	pods    *source            // the inotify descriptor of AddDir
}

// source is a descriptor in the epoll set.
type source struct {
	key  int32 // names it in the set: a number of a descriptor may be given out again
	fd   int
	wake Wake
	// drain takes what happened off the descriptor, so that it is not reported
	// again. It is false when nothing can come from it any more.
	drain func(fd int, events uint32) (alive bool)
}

// NewWaker starts to wait, for nothing yet.
func NewWaker(l Layout) (*Waker, error) {
	w := &Waker{
		layout: l, queue: queue{out: make(chan Wake, wakeKinds)},
		armer: armer{nudge: make(chan struct{}, 1), groups: map[string]*levels{}},
		quit:  make(chan struct{}), sources: map[int32]*source{}, events: map[string]*source{},
	}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		// Key 0 is the stop itself.
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

// Wakes gives the wakes as they come; it is closed by Close.
func (w *Waker) Wakes() <-chan Wake { return w.queue.out }

// run waits until Close.
func (w *Waker) run() {
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // cannot be: the descriptor is open until this returns
		}
		for _, e := range events[:n] {
			if e.Fd == 0 {
				return
			}
			if wake, ok := w.happened(e); ok {
				w.queue.put(wake)
			}
		}
		// Whoever took the wake runs on in this thread, which has a CPU, and not in
		// one that has to be given a CPU first: on a busy node that takes milliseconds.
		runtime.Gosched()
	}
}

// happened takes one event off its source.
func (w *Waker) happened(e unix.EpollEvent) (Wake, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sources[e.Fd]
	if s == nil {
		return "", false // dropped between the event and now
	}
	if !s.drain(s.fd, e.Events) {
		w.drop(s)
	}
	return s.wake, true
}

// add puts a source into the set and owns its descriptor from then on: it is closed
// when that fails.
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

// drop takes a source out of the set and closes it, once; w.mu is held.
func (w *Waker) drop(s *source) {
	if w.sources[s.key] != s {
		return
	}
	delete(w.sources, s.key)
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
	_ = unix.Close(s.fd)
}

// Close ends the goroutines and closes every descriptor. No wake comes after it.
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
	w.mu.Lock()
	for _, s := range w.sources {
		w.drop(s)
	}
	w.mu.Unlock()
	_ = unix.Close(w.stop)
	_ = unix.Close(w.epoll)
	w.queue.close()
}
