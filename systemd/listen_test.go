package systemd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listenEnv makes the test below the service that systemd starts.
const listenEnv = "CRIGUARD_TEST_LISTEN"

func TestListener(t *testing.T) {
	if os.Getenv(listenEnv) != "" {
		serveOnce()
		return
	}
	if _, err := Listener(); !errors.Is(err, ErrNoSocket) {
		t.Fatalf("without systemd: %v", err)
	}
	dir, err := os.MkdirTemp("", "criguard-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	start := func(passed ...*os.File) (*exec.Cmd, *strings.Builder) {
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run='^TestListener$'`, os.Args[0])
		cmd.Env = append(os.Environ(), listenEnv+"=1", fmt.Sprintf("LISTEN_FDS=%d", len(passed)))
		cmd.ExtraFiles = passed
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}

	cmd, out := start(socket)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	if err := errors.Join(err, cmd.Wait()); err != nil || string(answer) != "hello" {
		t.Errorf("answered %q: %v %s", answer, err, out)
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, passed := range map[string][]*os.File{"two sockets": {socket, socket}, "a pipe": {r}} {
		cmd, out := start(passed...)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "open passed socket") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

// serveOnce greets one client.
func serveOnce() {
	l, err := Listener()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = io.WriteString(conn, "hello")
	_ = conn.Close()
}
