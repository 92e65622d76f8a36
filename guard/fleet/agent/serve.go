package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/guard/rundir"
)

// ServeOptions configures Serve.
type ServeOptions struct {
	Agent    Options // Saved and Save use Dir
	Listener net.Listener
	Dir      string // of the state that outlives a restart of the agent; "" = none
	Log      *slog.Logger
	Notifier Notifier
}

// Notifier reports the agent's state to the service manager.
type Notifier interface {
	Ready(status string) error
	Stopping(status string) error
	Status(line string) error
}

const (
	// observeInterval is how often the agent looks for changes to log.
	observeInterval = 5 * time.Second
	// saveInterval limits how much of an episode's time a crash of the agent loses.
	saveInterval = 30 * time.Second
	// fullInterval is how long a fleet was not full before it is logged again: the last node's wish may come and go.
	fullInterval = 10 * time.Minute
	// sweepAge is the minimum age of a temporary file that a crash left. The guard may use the same directory.
	sweepAge = 10 * time.Minute
	// shutdownTimeout limits the wait for answers under way.
	shutdownTimeout = time.Second
)

// Serve runs an agent until ctx ends, or its socket fails.
func Serve(ctx context.Context, opt ServeOptions) error {
	s := service{ServeOptions: opt}
	if opt.Dir != "" {
		rundir.SweepTemporary(opt.Dir, sweepAge, time.Now())
		saved, err := loadState(opt.Dir, opt.Agent.Now())
		if err != nil {
			opt.Log.Warn("starting without the last state", "reason", err.Error())
		}
		if saved.Fleet != opt.Agent.Fleet { // fleet.toml names another one now
			saved = Saved{}
		}
		opt.Agent.Saved, opt.Agent.Save = saved, s.save
	}
	s.agent = New(opt.Agent)
	server := NewServer(s.agent)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	group.Go(func() { s.agent.Run(ctx) })
	group.Go(func() {
		if err := server.Serve(Limit(opt.Listener)); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve the guard: %w", err))
		}
	})
	s.warn(opt.Notifier.Ready(s.line()))
	opt.Log.Info("fleet agent started", "fleet", opt.Agent.Fleet, "zone", opt.Agent.Zone, "node", opt.Agent.Node)
	tick := time.NewTicker(observeInterval)
	defer tick.Stop()
	for next := opt.Agent.Now() + saveInterval; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		s.observe()
		if now := opt.Agent.Now(); now >= next {
			next = now + saveInterval
			s.agent.Save()
		}
	}
	s.warn(opt.Notifier.Stopping("ending"))
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	_ = server.Shutdown(end) // a guard that is slow asks again
	_ = server.Close()
	group.Wait()
	s.agent.Save()
	opt.Log.Info("fleet agent stopped")
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// service is an agent with its surroundings.
type service struct {
	ServeOptions
	agent   *Agent
	written []byte // state in the file; for save
	cause   string // of the last failure that was logged; "" = connected
	alone   bool
	lost    bool
	taken   bool
	// fullAgain is from when on a fleet that is full is logged again.
	fullAgain time.Duration
}

// NameHint is what to do if another agent reports under a node's name.
const NameHint = "machines were cloned: give each its own machine ID, or its own node in fleet.toml"

// observe logs changes, and reports the state to the service manager.
func (s *service) observe() {
	st := s.agent.Status()
	switch {
	case st.Cause != s.cause && st.Cause != "":
		s.Log.Warn("fleet unavailable", "reason", st.Error)
	case st.Cause != s.cause:
		s.Log.Info("fleet available again")
	}
	if alone := st.AloneFor > 0; alone != s.alone {
		s.alone = alone
		if alone {
			s.Log.Warn("node is alone, soft stops are held", "reason", st.Error)
		} else {
			s.Log.Info("node is no longer alone")
		}
	}
	if st.PauseLost && !s.lost {
		s.Log.Error("the fleet's pause is gone before its time, and no operator resumed")
	}
	if st.NameTaken && !s.taken {
		s.Log.Error("another agent reports to the fleet under this node's name", "node", st.Node, "hint", NameHint)
	}
	if now := s.Agent.Now(); st.Full {
		if now >= s.fullAgain {
			s.Log.Warn("fleet is full, no soft stops: a bad rollout looks like this", "configurations", configurations(st.Pressured))
		}
		s.fullAgain = now + fullInterval
	}
	s.cause, s.lost, s.taken = st.Cause, st.PauseLost, st.NameTaken
	s.warn(s.Notifier.Status(s.line()))
}

// configurations describes the configurations that nodes share.
func configurations(shared []etcd.Shared) string {
	if len(shared) == 0 {
		return "unknown"
	}
	const most = 5 // a full fleet after a rollout has one or two
	var all []string
	for _, s := range shared[:min(len(shared), most)] {
		all = append(all, fmt.Sprintf("%s of version %s on %s", cmp.Or(s.Digest, "-"), cmp.Or(s.Version, "-"), api.Count(s.Wanting, "node")))
	}
	if len(shared) > most {
		all = append(all, fmt.Sprintf("%d more", len(shared)-most))
	}
	return strings.Join(all, ", ")
}

// line describes the state for `systemctl status`.
func (s *service) line() string {
	st := s.agent.Status()
	text := fmt.Sprintf("fleet %s, node %s: ", st.Fleet, st.Node)
	switch {
	case st.AloneFor > 0:
		return text + "alone, " + st.Cause
	case st.Cause != "":
		return text + st.Cause
	case st.Zone == nil:
		return text + "not connected yet"
	case st.Full:
		return text + "the fleet is full, no soft stops"
	default:
		return text + fmt.Sprintf("%d of %d in the zone want a soft stop, %s", st.Zone.Wanting, st.Zone.Members, st.Zone.State)
	}
}

// save writes the state, unless the file has it already.
func (s *service) save(state Saved) {
	text, err := formatState(state)
	if err == nil && !bytes.Equal(text, s.written) {
		if err = (rundir.Access{Mode: 0o600}).Replace(s.Dir, stateFile, text, !rundir.Synced); err == nil {
			s.written = text
		}
	}
	if err != nil {
		s.warn(fmt.Errorf("save state: %w", err))
	}
}

func (s *service) warn(err error) {
	if err != nil {
		s.Log.Warn("fleet agent degraded", "reason", err.Error())
	}
}
