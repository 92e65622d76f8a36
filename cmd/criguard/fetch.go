package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/control"
)

// fetch asks the service. It inspects the node directly if no service runs, or if --endpoint names a runtime
// other than the service's. noteUnused says which flags it did not need.
func fetch[T any](ctx context.Context, o *options, ask func(*control.Client) (T, error), inspect func(*guard.Look) (T, error)) (T, error) {
	client := control.NewClient(o.dir())
	if o.endpoint != "" {
		st, err := client.Status(ctx)
		if err != nil && !errors.Is(err, control.ErrNoService) {
			return *new(T), err
		}
		if err != nil || !sameSocket(o.endpoint, st.Runtime.Endpoint) {
			return look(ctx, o, inspect)
		}
	}
	o.served = true
	v, err := ask(client)
	if !errors.Is(err, control.ErrNoService) {
		return v, err
	}
	o.served = false
	return look(ctx, o, inspect)
}

// noteUnused notes on standard error that the service has answered, with its own configuration, although the flags
// name another one. JSON has no notes.
func (o *options) noteUnused(cmd *cobra.Command) {
	if !o.served || o.JSON() || o.config == "" && len(o.dropIns) == 0 {
		return
	}
	named, err := config.Load(o.config, o.dropIns...)
	inForce, _ := control.NewClient(o.dir()).Settings(cmd.Context()) // without an answer, they differ
	if err != nil || named.Effective() != inForce.Text {
		cli.Say(cmd.ErrOrStderr(), "note: a service answers, with its own configuration; --config and --config-dir are not used (`criguard check FILE` and `criguard simulate --config FILE` try another one)\n")
	}
}

// sameSocket reports whether two endpoints name the same socket: /var/run is often a link to /run.
func sameSocket(a, b string) bool {
	pathA, errA := socket.Path(a)
	pathB, errB := socket.Path(b)
	if errA != nil || errB != nil || pathA == pathB {
		return errA == nil && errB == nil
	}
	fileA, errA := os.Stat(pathA)
	fileB, errB := os.Stat(pathB)
	return errA == nil && errB == nil && os.SameFile(fileA, fileB)
}

// look inspects the node directly.
func look[T any](ctx context.Context, o *options, inspect func(*guard.Look) (T, error)) (v T, err error) {
	cfg, err := o.load()
	if err != nil {
		return v, err
	}
	return lookWith(ctx, cfg, inspect)
}

// lookAsServed inspects the node directly, with the configuration of the service.
func lookAsServed[T any](ctx context.Context, o *options, c *control.Client, inspect func(*guard.Look) (T, error)) (v T, err error) {
	inForce, err := c.Settings(ctx)
	if err != nil {
		return v, err
	}
	cfg, err := config.Parse("the configuration in force", strings.NewReader(inForce.Text))
	if err != nil {
		return v, err
	}
	cfg.Dir = o.dir()
	return lookWith(ctx, cfg, inspect)
}

func lookWith[T any](ctx context.Context, cfg config.Config, inspect func(*guard.Look) (T, error)) (v T, err error) {
	l, err := guard.OpenLook(ctx, cfg)
	if err != nil {
		return v, err
	}
	defer l.Close()
	return inspect(l)
}
