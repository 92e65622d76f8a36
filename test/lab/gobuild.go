package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Programs of this module: the one under test, and the one in every image of the lab.
const (
	criguardPackage = "github.com/criguard/criguard/cmd/criguard"
	workloadPackage = "github.com/criguard/criguard/test/lab/workload"
)

// buildContainerd builds containerd, its shim and ctr into dir. They are static, so they run with
// any libc.
func buildContainerd(ctx context.Context, dir string, say func(string, ...any)) error {
	say("building containerd %s from the Go module proxy (a minute or two)", containerd2)
	const module = "github.com/containerd/containerd/v2/cmd/"
	args := []string{"install", "-trimpath", "-ldflags=-s -w", "-tags=no_btrfs,no_devmapper,no_zfs"}
	for _, program := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		args = append(args, module+program+"@"+containerd2)
	}
	return run(goCommand(ctx, append(os.Environ(), "GOBIN="+dir), args...))
}

// BuildWorkload builds the program in the lab's images and copies it to path. It must run inside
// the module's tree. It does not relink an unchanged program.
func BuildWorkload(ctx context.Context, path string) error {
	err := buildProgram(path, "workload", func(built string) *exec.Cmd {
		return goCommand(ctx, os.Environ(), "build", "-trimpath", "-ldflags=-s -w", "-o", built, workloadPackage)
	})
	if err != nil {
		return fmt.Errorf("build workload: %w (hint: run inside the criguard tree, or give Options.Workload)", err)
	}
	return nil
}

// BuildCriguard builds criguard with the race detector and copies it to path. It must run inside
// the module's tree. It does not relink an unchanged program, even for tests of another package.
func BuildCriguard(ctx context.Context, path string) error {
	err := buildProgram(path, "criguard-race", func(built string) *exec.Cmd {
		return exec.CommandContext(ctx, "go", "build", "-race", "-o", built, criguardPackage)
	})
	if err != nil {
		return fmt.Errorf("build criguard: %w", err)
	}
	return nil
}

// buildProgram runs a command that builds a program in the cache under the given name, and copies
// it to path.
func buildProgram(path, name string, command func(built string) *exec.Cmd) error {
	cache, unlock, err := lockCache()
	if err != nil {
		return err
	}
	defer unlock()
	built := filepath.Join(cache, name)
	if err := run(command(built)); err != nil {
		return err
	}
	return copyProgram(built, path)
}

func goCommand(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(env, "CGO_ENABLED=0")
	return cmd
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
