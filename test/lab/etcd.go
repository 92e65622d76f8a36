package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The releases of etcd that InstallEtcd builds, by their minor version.
const (
	Etcd35 = "3.5"
	Etcd36 = "3.6"
)

var etcdReleases = map[string]string{Etcd35: "v3.5.35", Etcd36: "v3.6.16"}

// Etcds returns the versions of etcd that criguard supports, for tests that run on each.
func Etcds() []string { return []string{Etcd35, Etcd36} }

// InstallEtcd builds a version of etcd below the cache directory, unless it is already there, and returns the path of
// the program. It comes from the Go module proxy. say is called for steps that take time; nil is silent.
func InstallEtcd(ctx context.Context, version string, say func(format string, args ...any)) (path string, err error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	release, ok := etcdReleases[version]
	if !ok {
		return "", fmt.Errorf("install etcd %q: unknown (hint: one of %s)", version, strings.Join(Etcds(), ", "))
	}
	return installEtcd(ctx, "etcd", "go.etcd.io/etcd/server/v3", release, say)
}

// InstallEtcdctl builds the newest etcdctl in the same way.
func InstallEtcdctl(ctx context.Context, say func(format string, args ...any)) (path string, err error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	return installEtcd(ctx, "etcdctl", "go.etcd.io/etcd/etcdctl/v3", etcdReleases[Etcd36], say)
}

func installEtcd(ctx context.Context, name, module, release string, say func(string, ...any)) (path string, err error) {
	dir, err := Cached(name+"-"+release, func(dir string) error { return buildEtcd(ctx, name, module, release, dir, say) })
	if err != nil {
		return "", installError(name+" "+release, dir, err)
	}
	return filepath.Join(dir, name), nil
}

// buildEtcd builds a program of a release into dir. "go install" rejects its module because of its replace directives,
// so it is built from a module of its own.
func buildEtcd(ctx context.Context, name, module, release, dir string, say func(string, ...any)) error {
	say("building %s %s from the Go module proxy (a minute or two)", name, release)
	work := filepath.Join(dir, "module")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mod", "init", name},
		{"mod", "edit", "-require=" + module + "@" + release},
		{"build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), module},
	} {
		cmd := goCommand(ctx, os.Environ(), args...)
		cmd.Dir = work
		if err := run(cmd); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return os.RemoveAll(work)
}
