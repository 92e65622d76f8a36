package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/need"
)

// root is the root of the tree, relative to this package.
const root = "../.."

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// Every command of every document runs successfully, in the order of its document.
func TestEveryCommandIsRun(t *testing.T) {
	need.Root(t)
	s := newStage(t)
	for _, name := range documents(t) {
		if name == "docs/fleet.md" { // test/fleet runs them beside an etcd
			continue
		}
		commands := commandsOf(t, name)
		for _, c := range commands {
			// If a block shows the command too, it runs there.
			if c.inline && slices.ContainsFunc(commands, func(o shown) bool { return !o.inline && o.text == c.text }) {
				continue
			}
			t.Run(c.at, func(t *testing.T) { s.run(t, c) })
		}
	}
}

// stage is where commands run: a copy of the tree in a Debian root, and a node.
type stage struct {
	room *lab.Room
	dir  string // of the tree, in the room
	work string // working directory for commands on the node
	path string // with criguard and jq as the documents call them
	done map[string]bool
}

func newStage(t *testing.T) *stage {
	t.Helper()
	room, err := lab.OpenRoom(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{room: room, dir: "/tmp/docs", done: map[string]bool{}}
	clean := func() {
		out, err := s.inRoom(context.Background(), `
			! dpkg -s criguard || dpkg -P criguard
			! rpm -q criguard || rpm -e criguard
			rm -rf /tmp/docs /run/node /run/textfile /etc/criguard /var/lib/criguard /var/log/pods /usr/bin/criguard /etc/systemd/system/criguard.service /etc/systemd/system/criguard-fleet.* \
				/usr/lib/sysusers.d/criguard.conf /usr/lib/tmpfiles.d/criguard.conf
			mkdir /tmp/docs`)
		if err != nil {
			t.Errorf("clean the room: %v\n%s", err, out)
		}
	}
	s.dir = "/"
	clean()
	s.dir = "/tmp/docs"
	t.Cleanup(func() {
		s.dir = "/"
		clean()
		if err := room.Close(); err != nil {
			t.Error(err)
		}
	})
	s.copyTree(t)
	s.startNode(t)
	return s
}

// copyTree copies the files that git knows, in their current state, into a tree of its own.
func (s *stage) copyTree(t *testing.T) {
	t.Helper()
	copying := `git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --directory "$0"`
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-ec", copying, s.room.Path(s.dir))
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
}

// shim calls criguard as on a node, with the node's own configuration and service unless the
// command names others or a file to check. It interrupts endless commands after two seconds and gives top a terminal.
const shim = `#!/bin/bash
here=(--config %[2]s/config.toml --run-dir %[3]s)
case " $* " in *" --config "*|*" --from-kubelet "*|" check "[!-]*) here=() ;; esac
case "$1 $* " in
record*|*" -f "*|*" --watch "*) exec timeout --preserve-status --signal=INT 2 %[1]s "$@" "${here[@]}" ;;
top*) exec script -qec "timeout --foreground --preserve-status --signal=INT 2 %[1]s $* ${here[*]}" /dev/null ;;
esac
exec %[1]s "$@" "${here[@]}"
`

// quiet keeps the service from acting on real shortages of a busy machine.
const quiet = `
[eviction.hard]
"memory.available" = "0%"
"nodefs.available" = "0%"
"nodefs.inodesFree" = "0%"
"imagefs.available" = "0%"
"imagefs.inodesFree" = "0%"
"pid.available" = "0%"
[images]
prune = "never"
`

// kubeletConfig is the path on a node with a kubelet; on this node, the file is in the working
// directory.
const kubeletConfig = "/var/lib/kubelet/config.yaml"

// k3sConfig is the same on k3s.
const k3sConfig = "/etc/rancher/k3s/config.yaml"

// nodeRun is the directory of the node's service in the room. A purge of the package does not
// remove it.
const nodeRun = "/run/node"

// trace is the content of the placeholder TRACE.
const trace = `{"at":"0s","signals":{"memory.available":{"available":"2Gi","capacity":"4Gi"}}}` + "\n"

// startNode starts a containerd with a pod, and criguard as its service.
func (s *stage) startNode(t *testing.T) {
	t.Helper()
	node := lab.Shared(t, lab.Containerd2)
	harness.RunPod(t, node, lab.PodSpec{Name: "shop", Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"pause"}}}})
	s.work = t.TempDir()
	bin := filepath.Join(s.work, "bin")
	binary := filepath.Join(bin, "criguard.real")
	// Use the room's curl and jq, because the service's directory is in the room. jq reads the file
	// that is its last argument.
	jq := fmt.Sprintf("#!/bin/bash\nexec chroot %s jq \"${@:1:$#-1}\" <\"${!#}\"\n", s.room.Path("/"))
	curl := fmt.Sprintf("#!/bin/sh\nexec chroot %s curl --fail \"$@\"\n", s.room.Path("/"))
	runDir := s.room.Path(nodeRun)
	kubelet, err := filepath.Abs(filepath.Join(root, "guard/config/kubelet/testdata/kubeadm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.MkdirAll(bin, 0o755), os.Mkdir(runDir, 0o755), os.Mkdir(s.room.Path("/run/textfile"), 0o755),
		os.WriteFile(filepath.Join(s.work, "config.toml"), []byte(node.Config()+quiet), 0o600),
		os.WriteFile(filepath.Join(s.work, "try.toml"), []byte("[eviction.hard]\n\"memory.available\" = \"1Gi\"\n"), 0o600),
		os.Symlink(kubelet, filepath.Join(s.work, "kubelet.yaml")),
		os.WriteFile(filepath.Join(s.work, "k3s.yaml"), []byte("kubelet-arg: [max-pods=50]\n"), 0o600),
		os.WriteFile(filepath.Join(s.work, "leak.jsonl"), []byte(trace), 0o600),
		os.WriteFile(filepath.Join(s.work, "fleet.jsonl"), []byte(`{"at":"0s","members":{"z1":12},"wanting":{"z1":7}}`), 0o600),
		os.WriteFile(filepath.Join(bin, "criguard"), fmt.Appendf(nil, shim, binary, s.work, runDir), 0o755),
		os.WriteFile(filepath.Join(bin, "curl"), []byte(curl), 0o755),
		os.WriteFile(filepath.Join(bin, "jq"), []byte(jq), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	s.path = bin + ":" + os.Getenv("PATH")
	if err := lab.BuildCriguard(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	service := exec.Command(filepath.Join(bin, "criguard"), "run")
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(service.Process.Signal(os.Interrupt), service.Wait()); err != nil {
			t.Errorf("criguard run: %v", err)
		}
	})
	s.done["criguard run"] = true
	client := control.NewClient(rundir.Dir(runDir))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, err := client.Status(t.Context())
		if err == nil && status.Runtime.Up && status.Runtime.ListedAt != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("criguard run: runtime %+v, %v", status.Runtime, err)
		}
	}
}

// command returns the command to run in place of one that is shown: it fills in the placeholders of one within a sentence.
func (c shown) command() string {
	command := c.text
	if c.inline {
		command = strings.NewReplacer("kubelet FILE", "kubelet "+kubeletConfig, "[FILE]", "try.toml", "FILE", "try.toml", "fleet simulate TRACE", "fleet simulate --config /dev/null fleet.jsonl", "TRACE", "leak.jsonl").Replace(command)
	}
	if less, ok := shorter[command]; ok {
		return less
	}
	return command
}

// run runs a command in its way, once.
func (s *stage) run(t *testing.T, c shown) {
	command := c.command()
	if s.done[command] {
		return
	}
	s.done[command] = true
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out string
	var err error
	switch wayOf(command) {
	case inTree:
		out, err = s.inTree(ctx, command)
	case inRoom:
		out, err = s.inRoom(ctx, command)
	case onNode:
		out, err = s.onNode(ctx, command)
	case byOthers:
		t.Logf("run by %s", others[command].file)
	case nobody: // see TestEveryCommandHasAWay
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}

func (s *stage) inTree(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-ec", command)
	cmd.Dir = s.room.Path(s.dir)
	cmd.Env = append(os.Environ(), "VERSION=v1.2.3", "SOURCE_DATE_EPOCH=1795258157", "MAKEFLAGS=", "MAKELEVEL=0") // independent of the make that runs the tests
	// On timeout, kill the command with all its children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	// A goal missed because the machine is busy is not the command's fault.
	if strings.HasPrefix(command, "make bench ") && strings.Contains(string(out), "\nMISSED ") && !strings.Contains(string(out), "\nbench: ") {
		err = nil
	}
	return string(out), err
}

// inRoom runs a command in the Debian root and answers yes to apt-get's prompts.
func (s *stage) inRoom(ctx context.Context, command string) (string, error) {
	switch {
	case strings.HasPrefix(command, "rpm -U"):
		command += " --nodeps" // dpkg manages this root: rpm knows none of its packages
	case strings.HasPrefix(command, "dpkg -i criguard_"):
		command = "cd dist; " + command // in the document, the user has copied the file
	case strings.HasPrefix(command, "sed -i"):
		file := command[strings.LastIndex(command, " ")+1:]
		command = fmt.Sprintf("cp %[1]s before; %[2]s; ! cmp -s %[1]s before", file, command) // the command must change the file
	}
	cmd := s.room.Command(ctx, "bash", "-ec", "cd "+s.dir+"; "+command)
	cmd.Stdin = strings.NewReader("y\n")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// onNode accepts exit code 1 from `criguard status` and `criguard check`, which means a finding.
func (s *stage) onNode(ctx context.Context, command string) (string, error) {
	command = strings.NewReplacer("/run/textfile", s.room.Path("/run/textfile"), "/run/criguard", nodeRun, kubeletConfig, "kubelet.yaml", k3sConfig, "k3s.yaml").Replace(command)
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-ec", command)
	cmd.Dir = s.work
	cmd.Env = append(os.Environ(), "PATH="+s.path)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 && (strings.HasPrefix(command, "criguard status") || strings.HasPrefix(command, "criguard check")) {
		err = nil
	}
	return string(out), err
}
