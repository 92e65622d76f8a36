package etcdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/criguard/criguard/guard/fleet"
)

// Options configures a cluster.
type Options struct {
	Program string   // etcd
	Members int      // 0 = 1
	Args    []string // additional ones of each member
}

// Cluster is an etcd that runs until the test ends. Its user root has all roles once EnableRoles was called.
type Cluster struct {
	*Authority
	Members []*Member

	root fleet.TLS
}

// Member is a member of a cluster.
type Member struct {
	URL     string
	Address string // of its clients

	args   []string
	dir    string
	cmd    *exec.Cmd
	output *tail
	conn   *grpc.ClientConn
}

// Start starts a cluster with TLS and waits until it has a leader.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{Authority: NewAuthority(t)}
	c.root = c.Issue(t, "root")
	server := c.Issue(t, "server")
	var initial []string
	for i := range max(o.Members, 1) {
		client, peer := freeAddress(t), freeAddress(t)
		m := &Member{URL: "https://" + client, Address: client, dir: t.TempDir()}
		name := "m" + strconv.Itoa(i)
		initial = append(initial, name+"=https://"+peer)
		m.args = append([]string{o.Program, "--name=" + name, "--log-level=error", "--unsafe-no-fsync",
			"--listen-client-urls=" + m.URL, "--advertise-client-urls=" + m.URL,
			"--listen-peer-urls=https://" + peer, "--initial-advertise-peer-urls=https://" + peer,
			"--client-cert-auth", "--trusted-ca-file=" + server.CA, "--cert-file=" + server.Cert, "--key-file=" + server.Key,
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + server.CA, "--peer-cert-file=" + server.Cert, "--peer-key-file=" + server.Key,
			"--tls-min-version=TLS1.3"}, o.Args...)
		c.Members = append(c.Members, m)
	}
	for _, m := range c.Members {
		m.args = append(m.args, "--initial-cluster="+strings.Join(initial, ","))
		// By default, a client tries again after up to two minutes, which is longer than Wait's patience.
		retry := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}, MinConnectTimeout: time.Second}
		conn, err := grpc.NewClient("passthrough:///"+m.Address, grpc.WithConnectParams(retry), grpc.WithTransportCredentials(credentials.NewTLS(config(t, c.root))))
		if err != nil {
			t.Fatal(err)
		}
		m.conn = conn
		t.Cleanup(func() { _ = conn.Close() })
		m.Start(t)
		t.Cleanup(m.Kill)
	}
	c.Ready(t)
	return c
}

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() (urls []string) {
	for _, m := range c.Members {
		urls = append(urls, m.URL)
	}
	return urls
}

// Root returns the files of the user root.
func (c *Cluster) Root() fleet.TLS { return c.root }

// Conn returns a connection to the first member, as root.
func (c *Cluster) Conn() *grpc.ClientConn { return c.Members[0].conn }

// Ready waits until all members follow the same leader.
func (c *Cluster) Ready(t testing.TB) {
	t.Helper()
	Wait(t, func() error {
		leaders := map[uint64]bool{}
		for _, m := range c.Members {
			s, err := m.status(t.Context())
			if err != nil {
				return fmt.Errorf("%w; its output: %s", err, m.output)
			}
			leaders[s.Leader] = true
		}
		if len(leaders) != 1 || leaders[0] {
			return errors.New("no leader")
		}
		return nil
	})
}

// Leader returns the index of the leader.
func (c *Cluster) Leader(t testing.TB) (leader int) {
	t.Helper()
	Wait(t, func() error {
		for i, m := range c.Members {
			if s, err := m.status(t.Context()); err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				leader = i
				return nil
			}
		}
		return errors.New("no leader")
	})
	return leader
}

// Conn returns a connection to the member, as root.
func (m *Member) Conn() *grpc.ClientConn { return m.conn }

// PID returns the member's process.
func (m *Member) PID() int { return m.cmd.Process.Pid }

func (m *Member) status(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return pb.NewMaintenanceClient(m.conn).Status(ctx, &pb.StatusRequest{})
}

// Start starts the member.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	m.output = &tail{}
	m.cmd = exec.Command(m.args[0], append(m.args[1:], "--data-dir="+filepath.Join(m.dir, "data"))...)
	m.cmd.Stdout, m.cmd.Stderr = m.output, m.output
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the member at once, even if it is stopped.
func (m *Member) Kill() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// Wipe removes the data of a member that was killed.
func (m *Member) Wipe(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, "data")); err != nil {
		t.Fatal(err)
	}
}

// Snapshot copies the data of a member that was killed, and returns a function that puts it back in place of later data.
func (m *Member) Snapshot(t testing.TB) (restore func()) {
	t.Helper()
	data, saved := filepath.Join(m.dir, "data"), t.TempDir()
	if err := os.CopyFS(saved, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		m.Wipe(t)
		if err := os.CopyFS(data, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(data, 0o700); err != nil { // else etcd warns
			t.Fatal(err)
		}
	}
}

// Stop suspends the member (SIGSTOP) until Continue or the end of the test.
func (m *Member) Stop(t testing.TB) {
	t.Helper()
	process := m.cmd.Process
	t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// Continue resumes the member.
func (m *Member) Continue(t testing.TB) {
	t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// patience limits the wait for a condition that takes at most half a minute on a quiet machine: the longest delay of a
// node.
const patience = 90 * time.Second

// Wait calls f until it returns nil.
func Wait(t testing.TB, f func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %s: %v", patience, err)
		}
	}
}

// given are the addresses that tests of this process have.
var given sync.Map

// freeAddress returns an address at which a member listens later, and again whenever it is restarted. Its port is below those
// that the kernel gives to connections (ip_local_port_range): one of those might be taken meanwhile.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// tail keeps the end of a member's output.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (o *tail) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	const most = 2000
	o.text = bytes.Clone(o.text[max(0, len(o.text)-most):])
	return len(b), nil
}

// String returns the end of the output.
func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}
