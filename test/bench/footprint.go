package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/certs"
	"github.com/criguard/criguard/test/lab"
)

// footprint is what the fleet costs.
type footprint struct {
	Off       memory  `json:"guard_without_fleet"`
	On        memory  `json:"guard_in_fleet"`
	Agent     memory  `json:"agent"`
	BinaryMiB float64 `json:"binary_mib"`
}

// memory is a process's memory.
type memory struct {
	ResidentMiB float64 `json:"resident_mib"`
	AnonMiB     float64 `json:"resident_anonymous_mib"`
}

// String returns "resident (anonymous)".
func (m memory) String() string { return fmt.Sprintf("%.1f (%.1f)", m.ResidentMiB, m.AnonMiB) }

// measureFootprint measures an idle guard without a fleet, and then one in a fleet with its agent and a real etcd.
func (b *bench) measureFootprint(ctx context.Context) (err error) {
	info, err := os.Stat(b.criguard)
	if err != nil {
		return err
	}
	f := footprint{BinaryMiB: float64(info.Size()) / mib}
	// idle calls before, measures a guard, and calls with while it still runs.
	idle := func(more string, before, with func(g *criguard) error) (m memory, err error) {
		g, err := b.startConfigured(ctx, more)
		if err != nil {
			return m, err
		}
		defer func() { err = errors.Join(err, g.close()) }()
		if err := g.set(ctx, idleLevel); err != nil {
			return m, err
		}
		if err := before(g); err != nil {
			return m, err
		}
		if m, err = b.settledMemory(ctx, g.pid()); err != nil {
			return m, err
		}
		return m, with(g)
	}
	nothing := func(*criguard) error { return nil }
	b.say("the memory of a guard with the fleet off")
	if f.Off, err = idle("", nothing, nothing); err != nil {
		return err
	}
	etcd, endpoint, tls, err := b.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.end()) }()
	var a *process
	defer func() {
		if a != nil {
			err = errors.Join(err, a.end())
		}
	}()
	b.say("the memory of a guard with the fleet on, and of its agent")
	f.On, err = idle("[fleet]\nenabled = true\n", func(g *criguard) (err error) {
		a, err = b.startAgent(ctx, rundir.Dir(g.dir).FleetSocket(), endpoint, tls)
		return err
	}, func(*criguard) (err error) {
		f.Agent, err = b.settledMemory(ctx, a.pid())
		return err
	})
	if err != nil {
		return err
	}
	b.report.Footprint = &f
	return nil
}

func (b *bench) settledMemory(ctx context.Context, pid int) (memory, error) {
	u, err := b.settledUse(ctx, pid)
	return memory{float64(u.resident) / mib, float64(u.anon) / mib}, err
}

// startEtcd starts an etcd with TLS and waits until it answers. It returns a certificate for the agent.
func (b *bench) startEtcd(ctx context.Context) (p *process, endpoint string, tls fleet.TLS, err error) {
	fail := func(err error) (*process, string, fleet.TLS, error) { return nil, "", fleet.TLS{}, err }
	program, err := lab.InstallEtcd(ctx, lab.Etcd36, b.say)
	if err != nil {
		return fail(err)
	}
	dir := filepath.Join(b.lab.Dir(), "etcd")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fail(err)
	}
	authority, err := certs.New(dir)
	if err != nil {
		return fail(err)
	}
	server, err := authority.Issue("server", time.Hour)
	if err != nil {
		return fail(err)
	}
	if tls, err = authority.Issue("node", time.Hour); err != nil {
		return fail(err)
	}
	address, err := freeAddress()
	if err != nil {
		return fail(err)
	}
	endpoint = "https://" + address
	p, err = startProcess(exec.Command(program, "--data-dir", filepath.Join(dir, "data"), "--log-level=error", "--unsafe-no-fsync",
		"--listen-client-urls="+endpoint, "--advertise-client-urls="+endpoint, "--listen-peer-urls=http://127.0.0.1:0",
		"--client-cert-auth", "--trusted-ca-file="+server.CA, "--cert-file="+server.Cert, "--key-file="+server.Key))
	if err != nil {
		return fail(err)
	}
	err = until(ctx, "etcd to listen", func() (bool, error) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false, err
		}
		return true, c.Close()
	})
	if err != nil {
		return fail(errors.Join(fmt.Errorf("%w\n%s", err, p.logged()), p.end()))
	}
	return p, endpoint, tls, nil
}

// freeAddress returns a loopback address that nothing listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startAgent starts an agent, as its unit does, and returns once it is a member of the fleet.
func (b *bench) startAgent(ctx context.Context, socket, endpoint string, tls fleet.TLS) (*process, error) {
	binary, err := filepath.Abs(b.criguard)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.lab.Dir(), "agent")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "fleet.toml")
	text := fmt.Sprintf("fleet = \"bench\"\nnode = \"bench\"\nendpoints = [%q]\n[tls]\nca = %q\ncert = %q\nkey = %q\n", endpoint, tls.CA, tls.Cert, tls.Key)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "fleet", "agent", "--config", config, "--run-dir", dir, "--socket", socket)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=20MiB") // as in the unit
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	// A node's first contact is delayed by up to half a minute.
	err = until(ctx, "the agent to be a member", func() (bool, error) {
		s, err := agenttest.Status(ctx, socket)
		if err == nil && s.Zone == nil {
			err = errors.New("no contact yet: " + s.Error)
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, p.logged()), p.end())
	}
	return p, nil
}

// process is a program that runs beside a guard.
type process struct {
	cmd   *exec.Cmd
	ended chan error

	mu  sync.Mutex
	log bytes.Buffer
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

// Write collects the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end ends the program. It is an error if the program has ended by itself.
func (p *process) end() error {
	select {
	case err := <-p.ended:
		return errors.Join(fmt.Errorf("%s ended by itself (%s)\n%s", p.cmd.Path, p.cmd.ProcessState, p.logged()), err)
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	err := <-p.ended
	kill.Stop()
	if _, signaled := errors.AsType[*exec.ExitError](err); signaled {
		return nil
	}
	return err
}
