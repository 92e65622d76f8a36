package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/node/scenario"
)

// port is the channel to the host.
const port = "/dev/virtio-ports/agent"

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func serve() error {
	// The agent observes the node, so it must survive when the node runs out of memory.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w", err)
	}
	f, err := openPort()
	if err != nil {
		return err
	}
	defer f.Close()
	out := json.NewEncoder(f)
	tell := func(e scenario.Event) {
		if err := out.Encode(e); err != nil {
			fmt.Fprintln(os.Stderr, "guest: tell host:", err)
		}
	}
	node := scenario.NewNode(tell)
	tell(scenario.Event{Kind: scenario.Ready})
	if order, ok := scenario.Resumed(); ok {
		tell(node.Carry(order))
	}
	lines := bufio.NewScanner(attended{f})
	for lines.Scan() {
		var order scenario.Order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		tell(node.Carry(order))
	}
	return lines.Err()
}

// openPort waits for the port, which udev names.
func openPort() (*os.File, error) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(port, os.O_RDWR, 0)
		if err == nil || time.Since(begin) > time.Minute {
			return f, err
		}
	}
}

// attended reads from a port whose other side may not be connected yet, or no longer. Such a port
// returns end of file.
type attended struct{ io.Reader }

func (a attended) Read(b []byte) (int, error) {
	for {
		n, err := a.Reader.Read(b)
		if n > 0 || (err != nil && !errors.Is(err, io.EOF)) {
			return n, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
