package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// slowProxy is a proxy for a runtime's socket. While it is slow, it delays every answer.
type slowProxy struct {
	listener net.Listener
	target   string
	slow     atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newSlowProxy(path, endpoint string) (*slowProxy, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen before the runtime: %w", err)
	}
	p := &slowProxy{listener: l, target: strings.TrimPrefix(endpoint, "unix://")}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *slowProxy) endpoint() string { return "unix://" + p.listener.Addr().String() }

func (p *slowProxy) setSlow(slow bool) { p.slow.Store(slow) }

func (p *slowProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		p.wg.Go(func() { p.answer(client, server); _ = client.Close() })
	}
}

// answer forwards answers and, while the proxy is slow, delays each by slowBy seconds.
func (p *slowProxy) answer(client io.Writer, server io.Reader) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 1<<12)
	p.wg.Go(func() {
		for part := range parts {
			time.Sleep(time.Until(part.due))
			if _, err := client.Write(part.bytes); err != nil {
				break
			}
		}
		for range parts { // the client no longer reads
		}
	})
	defer close(parts)
	for {
		buf := make([]byte, 32<<10)
		n, err := server.Read(buf)
		if n > 0 {
			due := time.Now()
			if p.slow.Load() {
				due = due.Add(slowBy * time.Second)
			}
			parts <- part{buf[:n], due}
		}
		if err != nil {
			return
		}
	}
}

func (p *slowProxy) close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		if e := c.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}
