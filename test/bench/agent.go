package main

import (
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/criguard/criguard/guard/fleet/client/agenttest"
)

// fakeAgent is an agent of a fleet on a guard's socket.
type fakeAgent struct {
	path  string
	calls atomic.Int64 // connections so far

	mu       sync.Mutex
	listener net.Listener // nil = there is no agent
	conns    []net.Conn
}

// set replaces the agent by one that serves connections like this. nil ends it.
func (a *fakeAgent) set(serve func(net.Conn)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener != nil {
		_ = a.listener.Close()
	}
	for _, c := range a.conns {
		_ = c.Close()
	}
	a.listener, a.conns = nil, nil
	a.calls.Store(0)
	if serve == nil {
		return nil
	}
	l, err := net.Listen("unix", a.path)
	if err != nil {
		return err
	}
	a.listener = l
	go a.accept(l, serve)
	return nil
}

// accept serves the connections of a listener until it is closed.
func (a *fakeAgent) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		current := a.listener == l
		if current {
			a.conns = append(a.conns, c)
			a.calls.Add(1)
		}
		a.mu.Unlock()
		if !current {
			_ = c.Close()
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// eachInTurn returns an agent that serves each connection as another one of these does.
func eachInTurn(agents map[string]func(net.Conn)) func(net.Conn) {
	next := inTurn(slices.Sorted(maps.Keys(agents)))
	return func(c net.Conn) { agents[next()](c) }
}

// lying returns an agent that never permits a stop, with another absurd answer each time.
func lying() func(net.Conn) {
	lies := agenttest.Grants()
	delete(lies, "permit for ever") // the guard uses it
	maps.Copy(lies, agenttest.Denials())
	next := inTurn(slices.Sorted(maps.Keys(lies)))
	return agenttest.Answer(func() string { return lies[next()] })
}

// inTurn returns a function that returns one name after the other, for ever.
func inTurn(names []string) func() string {
	var n atomic.Uint64
	return func() string { return names[(n.Add(1)-1)%uint64(len(names))] }
}
