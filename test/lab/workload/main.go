package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "workload: no mode (hint: pause, hog, fill, inodes, hide, fork, exit or ignore-term)")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "workload: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// run does the mode's work and then waits for a signal.
func run(mode string, args []string) error {
	flags := flag.NewFlagSet(mode, flag.ExitOnError)
	delay := flags.Duration("term-delay", 0, "how long to go on after SIGTERM")
	modes := map[string]func(*flag.FlagSet, []string) (work func() error, err error){
		"pause": pause, "hog": hog, "fill": fill, "inodes": inodes, "hide": hide, "fork": fork, "exit": exit, "ignore-term": pause,
	}
	prepare, ok := modes[mode]
	if !ok {
		return fmt.Errorf("unknown mode")
	}
	work, err := prepare(flags, args)
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	if mode == "ignore-term" {
		signal.Ignore(syscall.SIGTERM)
		signal.Notify(ended, syscall.SIGINT)
	} else {
		signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	}
	// As PID 1 of a pod, let the kernel reap orphaned children.
	signal.Ignore(syscall.SIGCHLD)
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				say("%s: %v", mode, err)
			} else {
				say("%s: done", mode)
			}
			done = nil
		case <-ended:
			time.Sleep(*delay)
			return nil
		}
	}
}

func pause(flags *flag.FlagSet, args []string) (func() error, error) {
	return func() error { return nil }, flags.Parse(args)
}

func exit(flags *flag.FlagSet, args []string) (func() error, error) {
	code := flags.Int("code", 0, "exit code")
	return func() error {
		os.Exit(*code)
		return nil
	}, flags.Parse(args)
}

// say writes one line with the time since boot in nanoseconds.
func say(format string, args ...any) {
	fmt.Printf("%d "+format+"\n", append([]any{bootTime()}, args...)...)
}
