package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/criguard/criguard/test/lab"
)

// recipe determines the content of the root filesystem. Its hash names the cached image.
type recipe struct {
	Suite    string
	Packages []string
	Size     string            // of the filesystem
	Inodes   int               // few, so that they run out soon
	Remove   []string          // files that are not needed
	Files    map[string]string // written last; "" removes, "-> x" makes a link
}

// nodeRecipe is Debian with a runtime, the guards that criguard is compared with (disabled), and
// the agent's unit.
func nodeRecipe() recipe {
	files := map[string]string{
		"etc/hostname":    "node\n",
		"etc/hosts":       "127.0.0.1 localhost node\n", // the CRI needs it to create sandboxes
		"etc/resolv.conf": "nameserver 127.0.0.1\n",
		"etc/fstab":       "/dev/vdb /payload ext4 ro 0 0\n",
		"payload/README":  "The payload disk is mounted here.\n",
		// The agent survives whatever happens to the node, and does not influence it.
		"etc/systemd/system/agent.service": `[Unit]
Description=Agent that carries out scenarios
RequiresMountsFor=/payload
After=containerd.service
StartLimitIntervalSec=0
[Service]
ExecStart=/payload/guest
Restart=always
RestartSec=1
OOMScoreAdjust=-1000
LimitMEMLOCK=infinity
Environment=GOMEMLIMIT=24MiB
Slice=-.slice
`,
		"etc/systemd/system/multi-user.target.wants/agent.service":        "-> ../agent.service",
		"etc/systemd/system/serial-getty@ttyS0.service":                   "-> /dev/null",
		"etc/systemd/system/getty@.service":                               "-> /dev/null",
		"etc/systemd/system/multi-user.target.wants/earlyoom.service":     "",
		"etc/systemd/system/sockets.target.wants/systemd-oomd.socket":     "",
		"etc/systemd/system/multi-user.target.wants/systemd-oomd.service": "",
		"etc/systemd/system/dbus-org.freedesktop.oom1.service":            "",
		"etc/systemd/system/default.target":                               "-> /usr/lib/systemd/system/multi-user.target",
		"etc/systemd/journald.conf.d/volatile.conf":                       "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n",
	}
	for _, timer := range []string{"apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim", "systemd-tmpfiles-clean"} {
		files["etc/systemd/system/"+timer+".timer"] = "-> /dev/null"
	}
	return recipe{
		Suite: "bookworm",
		Packages: strings.Fields("systemd systemd-sysv containerd runc iproute2 linux-image-cloud-amd64 udev procps kmod dbus e2fsprogs" +
			" earlyoom systemd-oomd"),
		Size:   "1G",
		Inodes: 20480,
		Remove: strings.Fields("usr/share/doc usr/share/man usr/share/locale var/cache/apt var/lib/apt/lists"),
		Files:  files,
	}
}

// image is a root filesystem with its kernel.
type image struct{ root, kernel, initrd string }

// buildImage builds the image unless it is in the cache.
func buildImage(ctx context.Context) (image, error) {
	r := nodeRecipe()
	text, err := json.Marshal(r)
	if err != nil {
		return image{}, err
	}
	dir, err := lab.Cached(fmt.Sprintf("node-%x", sha256.Sum256(text))[:17], func(dir string) error {
		say("making the root filesystem from Debian packages (a minute or two)")
		return r.build(ctx, dir)
	})
	if err != nil {
		return image{}, fmt.Errorf("make root filesystem: %w (hint: needs root and a network; without one, copy %s from a machine that has it)", err, dir)
	}
	return image{root: filepath.Join(dir, "root.img"), kernel: filepath.Join(dir, "kernel"), initrd: filepath.Join(dir, "initrd")}, nil
}

// build writes the image's three files to dir.
func (r recipe) build(ctx context.Context, dir string) error {
	tree := filepath.Join(dir, "tree")
	debstrap := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--variant=minbase", "--format=directory",
		"--include="+strings.Join(r.Packages, ","), r.Suite, tree)
	if err := run(debstrap); err != nil {
		return err
	}
	for pattern, to := range map[string]string{"boot/vmlinuz-*": "kernel", "boot/initrd.img-*": "initrd"} {
		found, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil || len(found) != 1 {
			return errors.Join(fmt.Errorf("find one %s: found %d", pattern, len(found)), err)
		}
		if err := os.Rename(found[0], filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	for _, path := range r.Remove {
		if err := os.RemoveAll(filepath.Join(tree, path)); err != nil {
			return err
		}
	}
	for path, text := range r.Files {
		if err := place(filepath.Join(tree, path), text); err != nil {
			return err
		}
	}
	if err := makeExt4(ctx, filepath.Join(dir, "root.img"), r.Size, tree, "-N", fmt.Sprint(r.Inodes)); err != nil {
		return err
	}
	return os.RemoveAll(tree)
}

// place writes, links or removes a file according to recipe.Files.
func place(path, text string) error {
	if err := os.RemoveAll(path); err != nil || text == "" {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if target, ok := strings.CutPrefix(text, "-> "); ok {
		return os.Symlink(target, path)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// makeExt4 creates a filesystem image with the content of tree.
func makeExt4(ctx context.Context, path, size, tree string, options ...string) error {
	args := append([]string{"-q", "-F", "-t", "ext4", "-d", tree}, options...)
	return run(exec.CommandContext(ctx, "mke2fs", append(args, path, size)...))
}
