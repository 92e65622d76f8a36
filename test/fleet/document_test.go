package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/etcdtest"
	"github.com/criguard/criguard/test/jsondoc"
	"github.com/criguard/criguard/test/lab"
)

// site is the three machines of docs/fleet.md, with loopback addresses for theirs.
type site struct {
	*testing.T
	dir    string
	blocks map[string]string // by the first line
	env    []string
}

var shellBlock = regexp.MustCompile("(?s)```sh\n# (.*?)\n(.*?)```")

func openSite(t *testing.T) *site {
	t.Helper()
	text, err := os.ReadFile("../../docs/fleet.md")
	must(t, err)
	s := &site{T: t, dir: t.TempDir(), blocks: map[string]string{}}
	criguard := filepath.Join(s.dir, "criguard")
	must(t, lab.BuildCriguard(t.Context(), criguard))
	etcdctl, err := lab.InstallEtcdctl(t.Context(), t.Logf)
	must(t, err)
	s.env = append(os.Environ(), "PATH="+s.dir+":"+filepath.Dir(built[lab.Etcd36])+":"+filepath.Dir(etcdctl)+":"+os.Getenv("PATH"), "GORACE=log_path="+filepath.Join(s.dir, "race"))
	client, peer := freePort(t), freePort(t)
	for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		s.blocks[m[1]] = strings.NewReplacer("10.0.0.", "127.0.0.", ":2379", ":"+client, ":2380", ":"+peer).Replace(m[2])
	}
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(unusedAddress(t))
	must(t, err)
	return port
}

// block returns a block of the document as it is for a machine.
func (s *site) block(name string, machine int) string {
	s.Helper()
	text, ok := s.blocks[name]
	if !ok {
		s.Fatalf("docs/fleet.md has no block %q", name)
	}
	return strings.Replace(text, "i=1 # its number\n", fmt.Sprintf("i=%d\n", machine), 1)
}

// shell runs commands in bash.
func (s *site) shell(text string) string {
	s.Helper()
	cmd := s.command(s.Context(), text)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%v\n%s%s%s", err, text, out, errs.String())
	}
	return string(out)
}

func (s *site) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-euc", text)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// start runs a program until the end of the test.
func (s *site) start(text string) {
	s.Helper()
	cmd := s.command(context.Background(), "exec "+strings.TrimSpace(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(s.T, cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && strings.HasPrefix(text, "criguard") {
			s.Errorf("%s: %v\n%s", text, err, out.String())
		}
		if s.Failed() {
			s.Logf("%.40s\n%s", text, out.String())
		}
	})
}

// node is the prefix of commands on a node: criguard with the node's files.
func (s *site) node(i int) string {
	return fmt.Sprintf("criguard() { %[1]s/criguard \"$@\" --config %[1]s/n%[2]d/fleet.toml --run-dir %[1]s/n%[2]d; }\nsystemctl() { :; }\n", s.dir, i)
}

// The setup of docs/fleet.md works as it is written, with a user of etcd for each role, and so does every command that
// an operator has. Package systemd checks the units, and test/package that they are installed.
func TestDocument(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	// On loopback, members of etcd connect from 127.0.0.1, and they compare a certificate with the address of its sender.
	s.shell(strings.Replace(s.block("On one machine: certificates", 1), "subjectAltName=", "subjectAltName=IP:127.0.0.1,", 1))
	for i := 1; i <= 3; i++ {
		text := strings.ReplaceAll(s.block("On each machine: etcd", i), "/var/lib/etcd-fleet", filepath.Join(s.dir, fmt.Sprint("etcd", i)))
		number, text, _ := strings.Cut(text, "\n")
		s.start("env " + number + " bash -c '" + strings.Replace(text, "etcd ", "exec etcd --log-level=error ", 1) + "'")
	}
	etcdtest.Wait(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		roles, _, _ := strings.Cut(s.block("On one machine: roles", 1), "\n")
		out, err := s.command(ctx, roles+"\netcdctl endpoint health").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.shell(s.block("On one machine: roles", 1))

	for i := 1; i <= 3; i++ {
		dir := filepath.Join(s.dir, fmt.Sprint("n", i))
		text := strings.NewReplacer("/etc/criguard", dir, "-g criguard-fleet ", "", `zone = "ring-1"`, fmt.Sprintf("zone = \"ring-1\"\nnode = \"node-%d\"", i)).Replace(s.block("On each node: the agent", i))
		if out := s.shell(s.node(i) + text); !strings.Contains(out, "\nok: ") || strings.Count(out, " ok\n") != 3 {
			t.Errorf("check on node %d: %s", i, out)
		}
		s.start(fmt.Sprintf("criguard fleet agent --config %[1]s/fleet.toml --run-dir %[1]s --socket %[1]s/fleet.sock", dir))
		s.guard(i)
	}
	etcdtest.Wait(t, func() error {
		out := s.shell(s.node(1) + s.block("On any node: the state of the fleet", 1))
		if strings.Count(out, `"version": "v1"`) != 3 || !strings.Contains(out, "0 of 3 want a soft stop, fewer than 4 members: normal, settling, 0.01/s") || !strings.Contains(out, "\nagent       connected\n") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.operate()
}

// guard sends the state of a node's guard to its agent.
func (s *site) guard(i int) {
	s.Helper()
	socket := filepath.Join(s.dir, fmt.Sprint("n", i), "fleet.sock")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	etcdtest.Wait(s.T, func() error {
		body, err := json.Marshal(agent.State{Wants: []policy.Pool{}, Digest: "d1", Version: "v1"})
		must(s.T, err)
		r, err := http.NewRequestWithContext(s.Context(), http.MethodPut, "http://agent/v1/state", bytes.NewReader(body))
		must(s.T, err)
		resp, err := transport.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
}

// operate runs the operators' commands, and compares their JSON with its documentation.
func (s *site) operate() {
	s.Helper()
	out := s.shell(s.node(1) + s.block("On any node: an operator", 1))
	for _, want := range []string{"\nok: ", "paused for 1h\n", "the fleet is not paused: "} {
		if !strings.Contains(out, want) {
			s.Errorf("an operator's commands: %s\nwant %s", out, want)
		}
	}
	doc, err := jsondoc.Read("../../docs/json.md")
	must(s.T, err)
	const operator = " --cert operator.crt --key operator.key"
	run := func(args string, code int, says string) {
		s.Helper()
		out := s.shell(s.node(2) + "code=0; criguard fleet " + args + " -o json || code=$?; echo; echo \"exit code $code\"")
		text, exit, _ := strings.Cut(out, "\n\nexit code ")
		if !strings.Contains(text, says) || strings.TrimSpace(exit) != fmt.Sprint(code) {
			s.Errorf("%s: want exit code %d and %s:\n%s", args, code, says, out)
		}
		name, _, _ := strings.Cut(args, " ")
		for _, wrong := range doc.Command("fleet "+name, code == 2, []byte(text)) {
			s.Error(wrong)
		}
	}
	run("status", 0, `"settling": true`)
	run("check", 0, `"errors": []`)
	run("check --cert operator.crt --key operator.key", 0, `"errors": []`)
	run("check --cert node-1.crt --key node-1.key", 1, "policy/pause")
	run("pause --for 1h", 2, "name an operator's with --cert and --key")
	run("pause --for 1h"+operator, 0, `"until"`)
	run("status", 1, `"paused_for"`)
	run("resume"+operator, 0, "not paused")
	run("status", 0, `"zones"`)
	node := regexp.MustCompile(`node-3-[0-9a-f]+`).FindString(s.shell(s.node(1) + "criguard fleet status"))
	run("forget "+node+operator, 0, "is removed")
	run("forget "+node+operator, 2, "no such node")
	run("status", 0, `"node-2-`)
	run("forget node-2", 2, "no such node") // names have a suffix
}
