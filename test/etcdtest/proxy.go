package etcdtest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes the connections of a client to a member, and injects the faults of a network.
type Proxy struct {
	URL string

	target   string
	listener net.Listener
	closed   chan struct{}
	workers  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   bool
	hung  bool
	delay time.Duration
	wake  chan struct{} // closed when a fault changes
}

// NewProxy starts a proxy for the member that listens at a loopback address.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{URL: "https://" + l.Addr().String(), target: target, listener: l, closed: make(chan struct{}), conns: map[net.Conn]bool{}, wake: make(chan struct{})}
	p.workers.Go(p.accept)
	t.Cleanup(func() {
		close(p.closed)
		_ = l.Close()
		p.Cut()
		p.workers.Wait()
	})
	return p
}

// Cut closes all connections and refuses others until Heal.
func (p *Proxy) Cut() {
	p.set(func() {
		p.cut = true
		for c := range p.conns {
			_ = c.Close()
		}
	})
}

// Hang passes nothing on, and keeps all connections, until Heal.
func (p *Proxy) Hang() { p.set(func() { p.hung = true }) }

// Delay delays everything that it passes on, in each direction, until Heal.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Heal ends all faults.
func (p *Proxy) Heal() { p.set(func() { p.cut, p.hung, p.delay = false, false, 0 }) }

func (p *Proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.wake)
	p.wake = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.target, time.Second)
		if err != nil || !p.register(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.workers.Go(func() { p.pass(client, server) })
		p.workers.Go(func() { p.pass(server, client) })
	}
}

func (p *Proxy) register(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

type chunk struct {
	due  time.Time
	data []byte
}

// pass copies from one connection to the other and then closes both.
func (p *Proxy) pass(from, to net.Conn) {
	chunks := make(chan chunk, 1024)
	p.workers.Go(func() {
		for c := range chunks {
			if !p.hold(c.due) {
				continue
			}
			if _, err := to.Write(c.data); err != nil {
				_ = from.Close()
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			_ = c.Close()
			delete(p.conns, c)
		}
	})
	defer close(chunks)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if n > 0 {
			p.mu.Lock()
			due := time.Now().Add(p.delay)
			p.mu.Unlock()
			chunks <- chunk{due, data[:n]}
		}
		if err != nil {
			return
		}
	}
}

// hold waits until a chunk is due and the proxy does not hang, and reports whether to pass it on.
func (p *Proxy) hold(due time.Time) bool {
	for {
		p.mu.Lock()
		cut, hung, wake := p.cut, p.hung, p.wake
		p.mu.Unlock()
		left := time.Until(due)
		switch {
		case cut:
			return false
		case !hung && left <= 0:
			return true
		}
		var timer <-chan time.Time
		if left > 0 {
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-wake:
		case <-p.closed:
		}
	}
}
