package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// roomPackages are the packages of a room besides Debian's essential ones: tools to install and
// inspect packages, shells, man page formatters, and emulators for other processors.
var roomPackages = []string{
	"systemd", "curl", "jq", "lintian", "rpm", "shellcheck", "mandoc", "man-db", "groff", "bash-completion", "zsh", "fish", "qemu-user-static",
}

// roomName changes with roomPackages, because an older room lacks the new packages.
const roomName = "room-2"

// Room is a small Debian root in the cache directory. Tests install packages in it and run programs
// that the machine may lack. Its programs see only their own processes and no network services.
// Only one test can have it open.
type Room struct {
	dir  string
	lock *os.File
}

// OpenRoom installs the room, unless it is already there, and waits until no other test has it
// open. It needs root, and apt and dpkg of the machine. say is called for every step that takes
// time; nil is silent.
func OpenRoom(ctx context.Context, say func(format string, args ...any)) (*Room, error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	cache, unlock, err := lockCache()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, roomName)
	err = once(dir, func(dir string) error { return fillRoom(ctx, cache, dir, roomPackages, say) })
	unlock()
	if err != nil {
		return nil, installError("a Debian root", dir, err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open room: %w", err)
	}
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock room: %w", err), lock.Close())
	}
	r := &Room{dir: dir, lock: lock}
	if err := r.shutServices(); err != nil {
		return nil, errors.Join(fmt.Errorf("open room: %w", err), lock.Close())
	}
	return r, nil
}

// shutServices keeps packages from starting services in the room, whatever a killed test has left there.
func (r *Room) shutServices() error {
	policy := r.Path("/usr/sbin/policy-rc.d")
	return errors.Join(
		os.RemoveAll(r.Path("/run/systemd/system")),
		os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755),
		os.Chmod(policy, 0o755),
	)
}

// ServicesStart lets the packages of the room believe that systemd runs and that they may start services, until the
// room is opened again.
func (r *Room) ServicesStart() error {
	return errors.Join(os.Remove(r.Path("/usr/sbin/policy-rc.d")), os.MkdirAll(r.Path("/run/systemd/system"), 0o755))
}

// Close releases the room for the next test.
func (r *Room) Close() error { return r.lock.Close() }

// Path returns the path on the machine of a path in the room.
func (r *Room) Path(path string) string { return filepath.Join(r.dir, path) }

// Command prepares a program of the room, which sees nothing but the room. When ctx ends, the
// program and all its children end.
func (r *Room) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return inRoom(ctx, r.dir, name, args...)
}

func inRoom(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	const enter = `mount -t proc none "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" "$@"`
	unshare := []string{"--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-ec", enter, dir, name}
	cmd := exec.CommandContext(ctx, "unshare", append(unshare, args...)...)
	// SYSTEMD_LOG_TARGET keeps a systemd program that is process 1 of the room from writing to the
	// kernel's log.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_LOG_TARGET=console"}
	return cmd
}

// fillRoom does what debootstrap does: all packages must be unpacked before the first maintainer
// script runs.
func fillRoom(ctx context.Context, cache, dir string, packages []string, say func(string, ...any)) error {
	say("downloading a Debian root with %s and %d more (half a minute)", packages[0], len(packages)-1)
	archives := filepath.Join(dir, "var/cache/apt/archives")
	status := filepath.Join(dir, "var/lib/dpkg/status")
	for _, d := range []string{filepath.Join(archives, "partial"), filepath.Dir(status)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return err
	}
	err := aptGet(ctx, cache, dir, slices.Concat([]string{
		"-y", "--no-install-recommends", "--download-only",
		"-o", "Dir::State::status=" + status, "-o", "Dir::Cache::archives=" + archives, "install", "?essential",
	}, packages)...)
	if err != nil {
		return err
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "usr", d), 0o755), os.Symlink("usr/"+d, filepath.Join(dir, d))); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if err := run(exec.CommandContext(ctx, "dpkg-deb", "-x", deb, dir)); err != nil {
			return err
		}
	}
	if err := (&Room{dir: dir}).shutServices(); err != nil {
		return err
	}
	if err := run(inRoom(ctx, dir, "/bin/sh", "-ec", `
		cd /var/cache/apt/archives
		dpkg --force-depends --install base-passwd_*.deb
		dpkg --force-depends --install base-files_*.deb
		dpkg --force-depends --force-overwrite --unpack ./*.deb
		dpkg --configure --pending
	`)); err != nil {
		return err
	}
	return os.RemoveAll(archives)
}
