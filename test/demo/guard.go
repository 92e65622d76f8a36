package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// settings are the parts of the demo's configuration that the acts change.
type settings struct {
	memory int64 // hard memory.available, bytes; 0: off
}

// configure writes the guard's configuration.
func (d *demo) configure(s settings) error {
	memory := "0%" // off
	if s.memory > 0 {
		memory = fmt.Sprint(s.memory)
	}
	text := "# What the demo runs criguard with.\n" + d.lab.Config() + fmt.Sprintf(`
[eviction.hard]
"memory.available" = %q
"imagefs.available" = "25%%"
"nodefs.available" = "0%%"
"nodefs.inodesFree" = "0%%"

[eviction.minimum_reclaim]
"imagefs.available" = "10%%"

[[protect]]
namespace = "vault"

[containers]
min_age = "0s"
max_per_container = 0

[images]
min_age = "0s"
unused_grace = "0s"
high = "99%%"
low = "98%%"
hold_after_runtime_restart = "0s"

[history]
dir = %q
`, memory, d.dir)
	return os.WriteFile(d.config(), []byte(text), 0o600)
}

func (d *demo) config() string { return filepath.Join(d.dir, "config.toml") }

// startGuard runs `criguard run` and shows its log.
func (d *demo) startGuard(ctx context.Context) error {
	// The guard outlives a cancelled context, so that stopGuard can end it cleanly.
	d.guard = exec.Command(d.binary, "run", "--config", d.config(), "--run-dir", d.dir)
	out, err := d.guard.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.guard.Start(); err != nil {
		return fmt.Errorf("start criguard: %w", err)
	}
	d.logged = make(chan struct{})
	go d.relay(out)
	return d.until(ctx, "criguard to answer", func() (bool, error) {
		st, err := d.status(ctx)
		return err == nil && st.Live && st.Runtime.Up && st.Pods == len(d.pods), nil
	})
}

// relay prints the guard's log.
func (d *demo) relay(r io.Reader) {
	defer close(d.logged)
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		d.say("criguard: %s", sc.Text())
	}
}

// stopGuard ends the guard with SIGTERM and gives it five seconds.
func (d *demo) stopGuard() error {
	if d.guard == nil {
		return nil
	}
	g := d.guard
	d.guard = nil
	begin := time.Now()
	if err := g.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end criguard: %w", err)
	}
	kill := time.AfterFunc(10*time.Second, func() { _ = g.Process.Kill() })
	<-d.logged
	err := g.Wait()
	kill.Stop()
	if err != nil {
		return fmt.Errorf("end criguard: %w", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		return fmt.Errorf("criguard took %s to end", took)
	}
	return nil
}

// criguard runs a criguard command and returns its output. Exit code 1 is a finding, not a failure.
func (d *demo) criguard(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.binary, append(args, "--config", d.config(), "--run-dir", d.dir)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	// 1 is a finding; with 3, status shows that the runtime does not answer.
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 && (args[0] != "status" || exit.ExitCode() != 3)) {
		return "", fmt.Errorf("criguard %s: %w: %s%s", strings.Join(args, " "), err, out, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}

// ask runs a criguard command with JSON output.
func ask[T any](ctx context.Context, d *demo, args ...string) (T, error) {
	var v T
	out, err := d.criguard(ctx, append(args, "-o", "json")...)
	if err != nil {
		return v, err
	}
	var failed api.Error
	if err := json.Unmarshal([]byte(out), &failed); err == nil && failed.Error != "" {
		return v, fmt.Errorf("criguard %s: %s", strings.Join(args, " "), failed.Error)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		return v, fmt.Errorf("read JSON of criguard %s: %w", strings.Join(args, " "), err)
	}
	return v, nil
}

func (d *demo) status(ctx context.Context) (api.Status, error) {
	st, err := ask[api.Status](ctx, d, "status")
	if err == nil && st.APIVersion != api.APIVersion {
		err = fmt.Errorf("criguard status: apiVersion %q", st.APIVersion)
	}
	return st, err
}

func (d *demo) history(ctx context.Context) ([]api.Pass, error) {
	l, err := ask[api.HistoryList](ctx, d, "history", "--number", "0")
	return l.Passes, err
}

// until polls until a condition is true.
func (d *demo) until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
