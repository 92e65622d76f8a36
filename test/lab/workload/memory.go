package main

import (
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const mib = 1 << 20

// hog takes memory at an even rate. The pages come straight from the kernel, so that the garbage collector has no part in it.
func hog(flags *flag.FlagSet, args []string) (func() error, error) {
	total := flags.Int64("mib", 64, "how many MiB to take in all")
	rate := flags.Float64("rate", 0, "MiB per second; 0 is as fast as can be")
	after := flags.Duration("after", 0, "how long to wait first")
	when := flags.String("when", "", "file whose coming to wait for first; empty is none")
	return func() error {
		time.Sleep(*after)
		for *when != "" {
			if _, err := os.Stat(*when); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		memory, err := syscall.Mmap(-1, 0, int(*total)*mib, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
		if err != nil {
			return fmt.Errorf("map %d MiB: %w", *total, err)
		}
		say("hog: begins")
		paced(*rate, *total, func(i int64) {
			chunk := memory[i*mib : (i+1)*mib]
			for page := 0; page < len(chunk); page += os.Getpagesize() {
				chunk[page] = 1
			}
		})
		return nil
	}, flags.Parse(args)
}

// paced calls step for 0 to total−1, at most rate times a second if rate is above zero.
func paced(rate float64, total int64, step func(int64)) {
	begin := time.Now()
	for i := range total {
		if rate > 0 {
			due := time.Duration(float64(i) / rate * float64(time.Second))
			time.Sleep(due - time.Since(begin))
		}
		step(i)
	}
}

// bootTime reads CLOCK_BOOTTIME in nanoseconds.
func bootTime() int64 {
	const clockBoottime = 7
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}
