package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/criguard/criguard/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "a single runtime, such as containerd-1.6, and nothing else")
	flag.Parse()
	if err := install(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func install(ctx context.Context, only string) error {
	say := func(format string, args ...any) { fmt.Printf("lab: "+format+"\n", args...) }
	runtimes := lab.Runtimes()
	if only != "" {
		runtimes = []string{strings.TrimPrefix(only, "containerd-")}
	}
	for _, runtime := range runtimes {
		started := time.Now()
		programs, err := lab.Install(ctx, runtime, say)
		if err != nil {
			return err
		}
		say("%s (%s)", programs.Reported, time.Since(started).Round(10*time.Millisecond))
	}
	if only != "" {
		return nil
	}
	promtool, err := lab.Promtool(ctx, say)
	if err != nil {
		return err
	}
	say("%s", promtool)
	for _, version := range lab.Etcds() {
		etcd, err := lab.InstallEtcd(ctx, version, say)
		if err != nil {
			return err
		}
		say("%s", etcd)
	}
	etcdctl, err := lab.InstallEtcdctl(ctx, say)
	if err != nil {
		return err
	}
	say("%s", etcdctl)
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
