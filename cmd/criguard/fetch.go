package main

import (
	"context"
	"errors"

	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/control"
)

// fetch asks the service. It inspects the node directly if no service runs, or if --endpoint names a runtime
// other than the service's.
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
	v, err := ask(client)
	if !errors.Is(err, control.ErrNoService) {
		return v, err
	}
	return look(ctx, o, inspect)
}

// sameSocket reports whether two endpoints name the same path.
func sameSocket(a, b string) bool {
	pathA, errA := socket.Path(a)
	pathB, errB := socket.Path(b)
	return errA == nil && errB == nil && pathA == pathB
}

// look inspects the node directly.
func look[T any](ctx context.Context, o *options, inspect func(*guard.Look) (T, error)) (v T, err error) {
	cfg, err := o.load()
	if err != nil {
		return v, err
	}
	l, err := guard.OpenLook(ctx, cfg)
	if err != nil {
		return v, err
	}
	defer l.Close()
	return inspect(l)
}
