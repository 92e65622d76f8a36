package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options name the inputs, the output and the tools.
type options struct {
	nfpm    string // path of the nfpm program
	native  string // criguard binary for this machine, which writes the completions
	dist    string // holds bin/ARCH/criguard; receives the packages
	version string // from git describe
	epoch   int64  // timestamp of everything in the packages, in seconds of Unix time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.nfpm, "nfpm", "nfpm", "nfpm's `program`")
	flag.StringVar(&o.native, "native", "bin/criguard", "criguard's `program` for this machine")
	flag.StringVar(&o.dist, "dist", "dist", "`directory` that holds bin/ARCH/criguard and takes the packages")
	flag.StringVar(&o.version, "version", "devel", "what git describe says")
	flag.Int64Var(&o.epoch, "epoch", -1, "time of everything in the packages, in `seconds` of Unix time")
	flag.Parse()
	if err := pack(ctx, o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// pack builds both packages for each architecture and removes those of earlier runs.
func pack(ctx context.Context, o options, names []string) error {
	if o.epoch < 0 {
		return errors.New("package without a time: no -epoch (hint: outside of a git tree, set SOURCE_DATE_EPOCH)")
	}
	stage := filepath.Join(o.dist, "stage")
	version := packageVersion(o.version, time.Unix(o.epoch, 0))
	if err := fillStage(ctx, stage, version, o); err != nil {
		return err
	}
	for _, pattern := range []string{"criguard_*.deb", "criguard-*.rpm"} {
		old, err := filepath.Glob(filepath.Join(o.dist, pattern))
		if err != nil {
			return err
		}
		for _, path := range old {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		a, err := findArch(name)
		if err != nil {
			return err
		}
		for format, file := range map[string]string{
			"deb": fmt.Sprintf("criguard_%s-1_%s.deb", version, a.debFile),
			"rpm": fmt.Sprintf("criguard-%s-1.%s.rpm", version, a.rpmFile),
		} {
			target := filepath.Join(o.dist, file)
			cmd := exec.CommandContext(ctx, o.nfpm, "package", "--config", "packaging/nfpm.yaml", "--packager", format, "--target", target)
			cmd.Env = append(os.Environ(),
				"ARCH="+a.nfpm, "BINARY="+filepath.Join(o.dist, "bin", a.name, "criguard"), "STAGE="+stage,
				"VERSION="+version, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.epoch))
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("make %s: %w: %s", file, err, strings.TrimSpace(string(out)))
			}
			fmt.Println(target)
		}
	}
	return nil
}
