package lab

import (
	"context"
	"os"
	"path/filepath"
)

// promtoolVersion is the release of Prometheus that Promtool builds.
const promtoolVersion = "v0.315.0"

// Promtool installs Prometheus' checker below the cache directory, unless it is already there, and
// returns its path. It is built from the Go module proxy, without support for service discoveries.
// say is called for steps that take time; nil is silent.
func Promtool(ctx context.Context, say func(format string, args ...any)) (path string, err error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	cache, unlock, err := lockCache()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(cache, "promtool-"+promtoolVersion)
	if err := once(dir, func(dir string) error { return buildPromtool(ctx, dir, say) }); err != nil {
		return "", installError("promtool "+promtoolVersion, dir, err)
	}
	return filepath.Join(dir, "promtool"), nil
}

// buildPromtool builds promtool into dir. "go install" rejects its module because of its replace
// directives, so it is built from a module of its own.
func buildPromtool(ctx context.Context, dir string, say func(string, ...any)) error {
	say("building promtool %s from the Go module proxy (a minute or two)", promtoolVersion)
	const program = "github.com/prometheus/prometheus/cmd/promtool"
	module := filepath.Join(dir, "module")
	if err := os.Mkdir(module, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mod", "init", "promtool"},
		{"get", program + "@" + promtoolVersion},
		{"build", "-tags=remove_all_sd", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "promtool"), program},
	} {
		cmd := goCommand(ctx, os.Environ(), args...)
		cmd.Dir = module
		if err := run(cmd); err != nil {
			return err
		}
	}
	return os.RemoveAll(module)
}
