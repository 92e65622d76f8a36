package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/criguard/criguard/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := install(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func install(ctx context.Context) error {
	say := func(format string, args ...any) { fmt.Printf("lab: "+format+"\n", args...) }
	for _, runtime := range lab.Runtimes() {
		started := time.Now()
		programs, err := lab.Install(ctx, runtime, say)
		if err != nil {
			return err
		}
		say("%s (%s)", programs.Reported, time.Since(started).Round(10*time.Millisecond))
	}
	promtool, err := lab.Promtool(ctx, say)
	if err != nil {
		return err
	}
	say("%s", promtool)
	if _, err := lab.Tmux(ctx, say); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	browser, err := lab.Browser(ctx, say)
	if err != nil {
		return err
	}
	say("%s", browser)
	room, err := lab.OpenRoom(ctx, say)
	if err != nil {
		return err
	}
	return room.Close()
}
