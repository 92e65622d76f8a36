package main

import (
	"flag"
	"fmt"
	"os/exec"
)

// fork starts processes that do nothing. Each has a handful of threads, which also count as tasks.
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
