package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The two runtimes a lab can run, as named in [Options].Containerd.
const (
	Containerd1 = "1.6" // Debian's package: 1.6 on bookworm
	Containerd2 = "2"   // built from the Go module proxy
)

// containerd2 is the release that Containerd2 stands for.
const containerd2 = "v2.4.2"

// Runtimes returns the names of all runtimes, for tests that run on each.
func Runtimes() []string { return []string{Containerd1, Containerd2} }

// Programs is an installed runtime.
type Programs struct {
	Dirs     []string // directories that hold containerd, its shim, ctr and runc, for PATH
	Libs     []string // directories with libraries that the system lacks, for LD_LIBRARY_PATH
	Reported string   // output of "containerd --version"
	Major    int      // 1 or 2; determines the format of the config file
}

// Install installs the runtime below the cache directory, unless it is already there, and returns
// its programs. say is called for every step that takes time; nil is silent. Nothing is installed
// on the system.
func Install(ctx context.Context, runtime string, say func(format string, args ...any)) (Programs, error) {
	major, err := majorOf(runtime)
	if err != nil {
		return Programs{}, err
	}
	if say == nil {
		say = func(string, ...any) {}
	}
	cache, unlock, err := lockCache()
	if err != nil {
		return Programs{}, err
	}
	defer unlock()

	debian := filepath.Join(cache, "debian")
	if err := once(debian, func(dir string) error { return installDebian(ctx, cache, dir, say) }); err != nil {
		return Programs{}, installError("containerd and runc", debian, err)
	}
	p := Programs{Dirs: []string{filepath.Join(debian, "usr/bin"), filepath.Join(debian, "usr/sbin")}}
	if p.Libs, err = filepath.Glob(filepath.Join(debian, "usr/lib/*-linux-gnu*")); err != nil {
		return Programs{}, err
	}
	if major == 2 {
		dir := filepath.Join(cache, "containerd-"+containerd2)
		if err := once(dir, func(dir string) error { return buildContainerd(ctx, dir, say) }); err != nil {
			return Programs{}, installError("containerd "+containerd2, dir, err)
		}
		p.Dirs = append([]string{dir}, p.Dirs...)
	}
	if err := p.probe(ctx); err != nil {
		return Programs{}, err
	}
	if p.Major != major {
		return Programs{}, fmt.Errorf("install containerd %s: the package holds %q (hint: unpack containerd %s and runc for this machine below %s)",
			runtime, p.Reported, runtime, debian)
	}
	return p, nil
}

// majorOf returns the major version of a runtime from Runtimes.
func majorOf(runtime string) (int, error) {
	switch runtime {
	case Containerd1:
		return 1, nil
	case Containerd2:
		return 2, nil
	}
	return 0, fmt.Errorf("install containerd %q: unknown (hint: one of %s)", runtime, strings.Join(Runtimes(), ", "))
}

// probe runs containerd and runc to read their versions, which also shows that both run on this
// machine.
func (p *Programs) probe(ctx context.Context) error {
	out, err := p.command(ctx, "containerd", "--version").Output()
	if err != nil {
		return fmt.Errorf("run containerd: %w", outputError(err))
	}
	if _, err := p.command(ctx, "runc", "--version").Output(); err != nil {
		return fmt.Errorf("run runc: %w", outputError(err))
	}
	p.Reported = strings.TrimSpace(string(out))
	p.Major, err = parseMajor(p.Reported)
	return err
}

// parseMajor parses the major version from the output of "containerd --version": "containerd
// <module> <version> <commit>".
func parseMajor(reported string) (int, error) {
	fields := strings.Fields(reported)
	if len(fields) < 3 {
		return 0, fmt.Errorf("read containerd version %q: no version in it", reported)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(fields[2], "v"), ".")
	major, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read containerd version %q: %w", reported, err)
	}
	return major, nil
}

// command prepares a command of the runtime, looked up in the runtime's own directories first.
func (p Programs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	for _, dir := range p.Dirs {
		if path := filepath.Join(dir, name); isExecutable(path) {
			name = path
			break
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = p.env()
	return cmd
}

// env returns the complete environment of the runtime. Nothing of the caller's own environment,
// such as NOTIFY_SOCKET, leaks into it.
func (p Programs) env() []string {
	env := []string{"PATH=" + strings.Join(append(p.Dirs, "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")}
	if len(p.Libs) > 0 {
		env = append(env, "LD_LIBRARY_PATH="+strings.Join(p.Libs, ":"))
	}
	return env
}

// Cached returns the named directory in the cache, and calls fill to create it if it is missing. An
// interrupted fill starts over, and two processes never fill it at the same time.
func Cached(name string, fill func(dir string) error) (string, error) {
	cache, unlock, err := lockCache()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(cache, name)
	return dir, once(dir, fill)
}

// once fills a temporary sibling of dir and renames it at the end, so that an interrupted
// installation starts over.
func once(dir string, fill func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	if err := fill(partial); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	return os.Rename(partial, dir)
}

func installError(what, dir string, err error) error {
	return fmt.Errorf("fetch %s: %w (hint: with a network, run \"go run ./test/lab/install\"; without one, copy %s from a machine that has it)", what, err, dir)
}

// run runs a command and adds the end of its output to the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lastLines(out, 5))
	}
	return nil
}

// outputError adds a failed command's standard error.
func outputError(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w: %s", err, lastLines(exit.Stderr, 5))
	}
	return err
}

// lastLines returns the last n lines of text, where programs usually report why they failed.
func lastLines(text []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
