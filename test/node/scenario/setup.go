package scenario

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/criguard/criguard/test/lab"
)

const (
	payload    = "/payload"
	configFile = "/etc/criguard/config.toml"
	endpoint   = "unix:///run/containerd/containerd.sock"
)

// setUp turns the machine into a node: a runtime with images, and criguard installed according to
// README.md.
func setUp(p Profile) error {
	if err := setUpContainerd(p); err != nil {
		return err
	}
	if err := importArchive(baseImages); err != nil {
		return err
	}
	// The kubelet sets this, too.
	if err := write("/etc/sysctl.d/90-kubelet.conf", "vm.overcommit_memory = 1\n"); err != nil {
		return err
	}
	if _, err := shell("sysctl -q --system"); err != nil {
		return err
	}
	for _, command := range []string{
		"install -m 755 criguard /usr/bin/",
		"install -D -m 644 config.toml " + configFile,
		"install -m 644 criguard.service /etc/systemd/system/",
		"install -m 644 criguard.sysusers /usr/lib/sysusers.d/criguard.conf",
		"systemd-sysusers",
		"install -m 644 criguard.tmpfiles /usr/lib/tmpfiles.d/criguard.conf",
		"systemd-tmpfiles --create",
		"systemctl enable --now criguard",
	} {
		if _, err := shell("cd " + payload + "/criguard && " + command); err != nil {
			return err
		}
	}
	return nil
}

// setUpContainerd configures the runtime and starts it
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
func setUpContainerd(p Profile) error {
	plugin, images := `plugins."io.containerd.grpc.v1.cri"`, `plugins."io.containerd.grpc.v1.cri"`
	key := "sandbox_image"
	if p.Containerd == 2 {
		plugin = `plugins."io.containerd.cri.v1.runtime"`
		images, key = `plugins."io.containerd.cri.v1.images".pinned_images`, "sandbox"
		dropIn := "[Service]\n" + "ExecStart=\n" + "ExecStart=" + payload + "/containerd2/containerd\nEnvironment=PATH=" + payload + "/containerd2:/usr/sbin:/usr/bin\n"
		if err := write("/etc/systemd/system/containerd.service.d/version.conf", dropIn); err != nil {
			return err
		}
	}
	config := fmt.Sprintf("version = %d\n[%s]\n%s = %q\n", 1+p.Containerd, images, key, lab.PauseImage)
	if plugin != images {
		config += fmt.Sprintf("[%s]\n", plugin)
	}
	config += fmt.Sprintf("disable_apparmor = true\n[%s.containerd.runtimes.runc]\nruntime_type = %q\n[%s.containerd.runtimes.runc.options]\nSystemdCgroup = %t\n",
		plugin, "io.containerd.runc.v2", plugin, p.Systemd)
	if err := write("/etc/containerd/config.toml", config); err != nil {
		return err
	}
	if p.Kubernetes {
		if err := write("/etc/cni/net.d/10-loopback.conflist", lab.LoopbackNetwork); err != nil {
			return err
		}
	}
	_, err := shell("systemctl daemon-reload && systemctl restart containerd")
	return err
}

// importArchive imports an archive from the payload disk into the runtime.
func importArchive(name string) error {
	_, err := shell(importing(name))
	return err
}

// importing returns the command for that.
func importing(name string) string {
	return "PATH=" + payload + "/containerd2:$PATH; case $(containerd --version) in *v2.*) local=--local;; esac; " +
		"/usr/bin/ctr -n k8s.io images import " + filepath.Join(payload, name)
}

// shell runs a shell command and returns its output.
func shell(command string) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", command).Output()
	text := strings.TrimSpace(string(out))
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return text, fmt.Errorf("%s: %w: %s", command, err, exit.Stderr)
	}
	return text, err
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// poll calls done until it returns true, or returns an error that names the missing condition.
func poll(what string, within time.Duration, done func() bool) error {
	for begin := time.Now(); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > within {
			return fmt.Errorf("no %s after %s", what, within)
		}
	}
	return nil
}
