package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/criguard/criguard/test/lab"
)

func main() {
	binary := flag.String("criguard", "bin/criguard", "the binary to show")
	runtime := flag.String("runtime", lab.Containerd1, "containerd to show it on: "+lab.Containerd1+" or "+lab.Containerd2)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := run(ctx, *binary, *runtime); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, runtime string) (err error) {
	d := &demo{story: newStory(os.Stdout), binary: binary}
	d.say("Setting the stage: a private containerd %s with its own small image filesystem", runtime)
	d.lab, err = lab.Start(ctx, lab.Options{Containerd: runtime, ImageFSBytes: imageFSBytes, Say: d.detail})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, act := range []func(context.Context) error{d.stage, d.before, d.actOne, d.actTwo, d.epilogue} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends the guard and the lab, and checks that nothing is left.
func (d *demo) close() error {
	errs := []error{d.stopGuard()}
	errs = append(errs, d.lab.Close())
	left, err := d.lab.Leftovers()
	errs = append(errs, err)
	for _, thing := range left {
		errs = append(errs, fmt.Errorf("left behind: %s", thing))
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}
