package main

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	mib = 1 << 20
	// hogStep is how much a hog takes at a time. It is small, so that memory grows evenly even at a
	// low rate.
	hogStep = mib / 8
)

// hog takes memory at an even rate. It maps pages directly from the kernel, without the garbage
// collector.
func hog(flags *flag.FlagSet, args []string) (func() error, error) {
	total := flags.Int64("mib", 64, "how many MiB to take in all")
	rate := flags.Float64("rate", 0, "MiB per second; 0 is as fast as can be")
	after := flags.Duration("after", 0, "how long to wait first")
	when := flags.String("when", "", "file whose coming to wait for first; empty is none")
	note := flags.String("progress", "", "file to map and note in when it began, and at each step the bytes taken and when (CLOCK_MONOTONIC, ns)")
	return func() error {
		progress, err := openProgress(*note)
		if err != nil {
			return err
		}
		time.Sleep(*after)
		awaitFile(*when)
		memory, err := syscall.Mmap(-1, 0, int(*total)*mib, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
		if err != nil {
			return fmt.Errorf("map %d MiB: %w", *total, err)
		}
		say("hog: begins")
		progress.begin()
		paced(*rate*(mib/hogStep), *total*(mib/hogStep), func(i int64) {
			chunk := memory[i*hogStep : (i+1)*hogStep]
			for page := 0; page < len(chunk); page += os.Getpagesize() {
				chunk[page] = 1
			}
			progress.note((i + 1) * hogStep)
		})
		return nil
	}, flags.Parse(args)
}

// awaitFile waits until the file exists. It returns at once for an empty path.
func awaitFile(path string) {
	for path != "" {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// progress is a hog's progress in a file that other processes map: three 64-bit numbers.
type progress struct{ bytes, at, began *int64 }

// openProgress maps a file. Without a path, the progress stays private.
func openProgress(path string) (progress, error) {
	if path == "" {
		return progress{new(int64), new(int64), new(int64)}, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return progress{}, err
	}
	defer f.Close()
	size := os.Getpagesize()
	if err := f.Truncate(int64(size)); err != nil {
		return progress{}, err
	}
	page, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return progress{}, fmt.Errorf("map %s: %w", path, err)
	}
	word := func(i int) *int64 { return (*int64)(unsafe.Pointer(&page[8*i])) }
	return progress{word(0), word(1), word(2)}, nil
}

func (p progress) begin() { atomic.StoreInt64(p.began, now(clockMonotonic)) }

func (p progress) note(bytes int64) {
	atomic.StoreInt64(p.bytes, bytes)
	atomic.StoreInt64(p.at, now(clockMonotonic))
}

// paced calls step for 0 to total−1, at most rate times a second if rate is positive.
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

// Clock IDs of clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// bootTime reads CLOCK_BOOTTIME in nanoseconds.
func bootTime() int64 { return now(clockBoottime) }

func now(clock uintptr) int64 {
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}
