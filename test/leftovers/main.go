package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// settle is how long to wait for things that disappear by themselves, such as a killed process.
const settle = 10 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "leftovers: no command")
		os.Exit(2)
	}
	m, err := thisMachine()
	if err == nil {
		err = run(m, os.Args[1:], settle)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leftovers:", err)
		os.Exit(1)
	}
}

func thisMachine() (machine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return machine{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return machine{}, err
	}
	tree, err := os.Getwd()
	keep := []string{filepath.Join(cache, "criguard"), filepath.Join(cache, "criguard-lab"), os.Getenv("CRIGUARD_LAB_CACHE"), tree}
	return machine{root: "/", home: home, keep: keep}, err
}

// run runs a command and returns an error if it fails or leaves anything.
func run(m machine, command []string, settle time.Duration) (err error) {
	// A short name, because socket paths below it must be short, too.
	if m.temp, err = os.MkdirTemp("", "cg"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.temp)) }()
	if err := os.Chmod(m.temp, 0o755); err != nil { // like /tmp: tests run programs below it as other users
		return err
	}
	before := m.look()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+m.temp)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The command receives these signals, too, and ends.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(ignored)
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%s: %w", command[0], err)
	}
	var left []string
	for deadline := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
		if left = m.look().since(before); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, thing := range left {
		err = errors.Join(err, fmt.Errorf("left behind: %s", thing))
	}
	return err
}
