package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

// cpu is the emulated CPU. Without ERMS the kernel clears and copies pages eight bytes at a time.
// Byte by byte, as with ERMS, qemu needs seconds for a page that has held program text, because it
// checks each store for translated code; on a node short of memory, most free pages are of that
// kind. init_on_alloc=0 avoids clearing pages twice. norandmaps avoids translating a program again
// at each start, which takes several times as long as the program.
const cpu = "max,-erms,-fsrm"

// machine is a running virtual node.
type machine struct {
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
	qmp    *qmp
	agent  net.Conn
	events chan scenario.Event // closed with the agent's port
}

// startMachine starts qemu on root and payload. If from is set, the machine resumes from the frozen
// state in that file, and qemu discards all disk writes at the end. Otherwise the profile's kernel
// boots from root.
func startMachine(ctx context.Context, dir string, p scenario.Profile, img image, root, payload, from string) (*machine, error) {
	disposable := "off"
	if from != "" {
		disposable = "on"
	}
	hierarchy := 0
	if p.Cgroup == 2 {
		hierarchy = 1
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg,thread=multi", "-cpu", cpu, "-smp", "2",
		"-m", strconv.Itoa(p.MemoryMiB), "-kernel", img.kernel, "-initrd", img.initrd,
		"-append", fmt.Sprintf("root=/dev/vda rw console=ttyS0 systemd.unified_cgroup_hierarchy=%d init_on_alloc=0 norandmaps panic=-1 quiet", hierarchy),
		"-drive", "if=virtio,format=raw,cache=unsafe,file=" + root + ",snapshot=" + disposable,
		"-drive", "if=virtio,format=raw,readonly=on,file=" + payload,
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,path=agent,server=on,wait=off", "-device", "virtserialport,chardev=agent,name=agent",
		"-chardev", "socket,id=qmp,path=qmp,server=on,wait=off", "-mon", "chardev=qmp,mode=control",
		"-serial", "file:serial",
	}
	if from != "" {
		args = append(args, "-incoming", "exec:cat '"+from+"'")
	}
	m := &machine{dir: dir, cmd: exec.CommandContext(ctx, "qemu-system-x86_64", args...), exited: make(chan struct{})}
	m.cmd.Dir = dir
	m.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	log, err := os.Create(filepath.Join(dir, "qemu.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start qemu: %w", err)
	}
	go func() {
		_ = m.cmd.Wait()
		close(m.exited)
	}()
	if err := m.connect(); err != nil {
		return nil, errors.Join(err, m.logTail(), m.end())
	}
	if from != "" {
		if err := m.qmp.thaw(); err != nil {
			return nil, errors.Join(err, m.logTail(), m.end())
		}
	}
	return m, nil
}

// connect opens both of qemu's sockets and starts reading from the agent.
func (m *machine) connect() error {
	control, err := m.dial("qmp")
	if err != nil {
		return err
	}
	if m.qmp, err = newQMP(control); err != nil {
		return err
	}
	if m.agent, err = m.dial("agent"); err != nil {
		return err
	}
	m.events = make(chan scenario.Event, 1000)
	go func() {
		defer close(m.events)
		lines := bufio.NewScanner(m.agent)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e scenario.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				m.events <- e
			}
		}
	}()
	return nil
}

// dial connects to a socket that qemu is about to create.
func (m *machine) dial(name string) (net.Conn, error) {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(m.dir, name))
		if err == nil || time.Since(begin) > 10*time.Second {
			return conn, err
		}
		select {
		case <-m.exited:
			return nil, fmt.Errorf("connect to qemu: it ended: %s", m.cmd.ProcessState)
		default:
		}
	}
}

// order sends an order to the agent.
func (m *machine) order(o scenario.Order) error {
	if err := json.NewEncoder(m.agent).Encode(o); err != nil {
		return fmt.Errorf("order agent: %w", err)
	}
	return nil
}

// await passes events to hear until one of the given kind arrives.
func (m *machine) await(ctx context.Context, kind string, limit time.Duration, hear func(scenario.Event)) (scenario.Event, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case e, ok := <-m.events:
			if !ok {
				return scenario.Event{}, errors.New("wait for agent: qemu ended")
			}
			if hear != nil {
				hear(e)
			}
			if e.Kind == kind {
				return e, nil
			}
		case <-late.C:
			return scenario.Event{}, fmt.Errorf("wait for agent: no %q after %s", kind, limit)
		case <-ctx.Done():
			return scenario.Event{}, ctx.Err()
		}
	}
}

// end kills qemu, and with it the machine.
func (m *machine) end() error {
	_ = m.cmd.Process.Kill()
	select {
	case <-m.exited:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("end qemu: process %d is still there", m.cmd.Process.Pid)
	}
}

// logTail returns the last output of qemu and of the guest's console, as an error.
func (m *machine) logTail() error {
	var text string
	for _, name := range []string{"qemu.log", "serial"} {
		b, _ := os.ReadFile(filepath.Join(m.dir, name))
		text += string(b[max(0, len(b)-2000):])
	}
	return errors.New(text)
}
