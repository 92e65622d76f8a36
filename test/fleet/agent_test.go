package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
)

// agentEnv makes the test's program an agent: it holds the JSON of a job.
const agentEnv = "CRIGUARD_TEST_FLEET_AGENT"

// job is an agent that always wants permits.
type job struct {
	Zone, Node string
	Endpoints  []string
	TLS        fleet.TLS
	Timeout    time.Duration
	Rates      fleet.Rates
	Workloads  []string
	// DieAt is the reading of the clock, after the first report, at which the process kills itself; 0 = none. A request reads it
	// when it has read the rates (1), before its first lease (2), before its transaction (3) and after it (4).
	DieAt int
	// Guard makes it an agent with a guard, which rests for about a time after each stop. State is the directory of the state that
	// outlives a kill; "" = none.
	Guard bool
	Rest  time.Duration
	State string
	// Probe makes it measure etcd, and nothing else.
	Probe bool
}

// grant is a permit that an agent got. All agents are on one machine, so their boot times compare.
type grant struct {
	Permit               etcd.Permit
	Zone, Node, Workload string
	Acquired, ReleasedAt time.Duration
}

// run acquires permits until ctx ends. It releases every fourth one at once, and lets the others expire.
func (j job) run(ctx context.Context, record func(grant), failed func(error)) error {
	readings, joined := 0, false
	now := func() time.Duration {
		if joined {
			readings++
		}
		if readings > 0 && readings == j.DieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return cgroup.BootTime()
	}
	c, err := etcd.New(etcd.Options{
		Fleet: fleetName, Zone: j.Zone, Node: j.Node, Endpoints: j.Endpoints, TLS: j.TLS, Rates: j.Rates, Timeout: j.Timeout, Now: now,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	report := func() error { return c.Report(ctx, wants()) }
	if err := report(); err != nil {
		failed(err)
	}
	joined = true
	for n := 0; ctx.Err() == nil; n++ {
		pause := time.Duration(0)
		workload := j.Workloads[rand.IntN(len(j.Workloads))]
		p, err := c.Acquire(ctx, j.Rates, workload, cryptorand.Text())
		denied, isDenied := errors.AsType[*etcd.DeniedError](err)
		switch {
		case err == nil:
			g := grant{Permit: p, Zone: j.Zone, Node: j.Node, Workload: workload, Acquired: cgroup.BootTime()}
			record(g)
			if n%4 == 0 {
				g.ReleasedAt = cgroup.BootTime()
				record(g)
				if err := c.Release(ctx, p); err != nil {
					failed(err)
				}
			}
		case isDenied && denied.Code == etcd.NotReported:
			if err := report(); err != nil {
				failed(err)
			}
		case isDenied:
			pause = min(denied.Left, time.Second) + rand.N(200*time.Millisecond)
		default:
			failed(err)
			pause = 50*time.Millisecond + rand.N(100*time.Millisecond)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// runAgent is the program of an agent's process. It prints a line for all that it says.
func runAgent(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	hear := func(s said) {
		line, err := json.Marshal(s)
		if err == nil {
			fmt.Println(string(line))
		}
	}
	switch {
	case j.Probe:
		return j.probe(context.Background(), hear)
	case j.Guard:
		return j.runNode(context.Background(), hear)
	}
	return j.run(context.Background(), func(g grant) { hear(said{Grant: &g}) }, func(error) {})
}

// process is an agent in a process of its own.
type process struct {
	cmd  *exec.Cmd
	done chan error
}

func startProcess(t testing.TB, j job, hear func(said)) *process {
	t.Helper()
	text, err := json.Marshal(j)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{cmd, make(chan error, 1)}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s said
			// The last line of a process that was killed may be cut short; nothing was stopped with that permit.
			if json.NewDecoder(bytes.NewReader(lines.Bytes())).Decode(&s) == nil {
				hear(s)
			}
		}
		p.done <- lines.Err()
	}()
	return p
}

// wait waits for a process that kills itself.
func (p *process) wait(t testing.TB) {
	t.Helper()
	must(t, <-p.done)
	_ = p.cmd.Wait() // killed
}

// kill ends the process at any point of a request.
func (p *process) kill(t testing.TB) {
	t.Helper()
	must(t, p.cmd.Process.Kill())
	p.wait(t)
}
