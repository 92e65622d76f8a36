package main

import (
	"flag"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// fork starts processes that do nothing. Each has a handful of threads, which count as tasks too.
func fork(flags *flag.FlagSet, args []string) (func() error, error) {
	count := flags.Int64("count", 10, "how many processes")
	rate := flags.Float64("rate", 0, "processes per second; 0 is as fast as can be")
	when := flags.String("when", "", "file whose coming to wait for first; empty is none")
	return func() error {
		awaitFile(*when)
		say("fork: begins")
		var failed error
		paced(*rate, *count, func(int64) {
			if failed == nil {
				child := exec.Command("/proc/self/exe", "pause")
				failed = child.Start()
			}
		})
		if failed != nil {
			return fmt.Errorf("start process: %w", failed)
		}
		return nil
	}, flags.Parse(args)
}

// spin keeps CPUs busy.
func spin(flags *flag.FlagSet, args []string) (func() error, error) {
	cpus := flags.Int("cpus", 1, "how many")
	last := flags.Duration("for", 0, "how long; 0 is for ever")
	return func() error {
		runtime.GOMAXPROCS(*cpus + 1)
		say("spin: begins")
		begin := time.Now()
		for range *cpus - 1 {
			go burn(begin, *last)
		}
		burn(begin, *last)
		return nil
	}, flags.Parse(args)
}

// burn looks at the clock now and then only: that can be a system call.
func burn(begin time.Time, last time.Duration) {
	for last == 0 || time.Since(begin) < last {
		for range 1 << 16 {
		}
	}
}
