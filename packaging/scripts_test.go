package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An upgrade checks the files that the running service was started with, and otherwise the default ones.
func TestPackageScriptsCheckTheServicesFiles(t *testing.T) {
	stubs := t.TempDir()
	for _, name := range []string{"systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper", "deb-systemd-invoke", "journalctl"} {
		if err := os.Symlink("/bin/true", filepath.Join(stubs, name)); err != nil {
			t.Fatal(err)
		}
	}
	for script, args := range map[string]string{"deb/postinst": "configure 1.2.3-1", "rpm/post": "2"} {
		for _, c := range []struct {
			pid, command string
			flags        []string
		}{
			{"0", "", nil},
			{"", "", nil},
			{"7", `/usr/bin/guard\0run\0`, nil},
			{"7", `guard\0--config\0/srv/a b*.toml\0run\0--observe\0--run-dir=/run/x\0`, []string{"--config", "/srv/a b*.toml", "--run-dir=/run/x"}},
		} {
			cmd := exec.Command("sh", "-c", `set -- `+args+`
				systemctl() { case "$1 $4" in "show criguard.service") echo "$PID" ;; show*) echo 0 ;; esac; }
				cat() { case $1 in /proc/0/cmdline) return 1 ;; /proc/7/cmdline) printf "$COMMAND" ;; /run/criguard.removed) ;; *) echo "$1" ;; esac; }
				criguard() { printf '%s\n' "$@"; return 2; }
				. ./`+script)
			cmd.Env = []string{"PATH=" + stubs + ":/usr/bin:/bin", "PID=" + c.pid, "COMMAND=" + c.command}
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			want := append([]string{"check", "--quiet", "--offline"}, c.flags...)
			if got := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || !slices.Equal(got, want) || !strings.HasPrefix(errs.String(), "criguard: the configuration has mistakes;") {
				t.Errorf("%s, started with %q: %v, checks %q, want %q\n%s", script, c.command, err, got, want, errs.String())
			}
		}
	}
}

// An upgrade restarts the agent of the fleet only if the new version takes the file that it was started with.
func TestPackageScriptsCheckTheFleetsFile(t *testing.T) {
	const restart = "try-restart criguard-fleet.service"
	for script, args := range map[string]string{"deb/postinst": "configure 1.2.3-1", "rpm/post": "2"} {
		for _, c := range []struct {
			pid, command, code string
			checks             string
			restarts           bool
		}{
			{"0", "", "2", "", true},
			{"7", `/usr/bin/guard\0fleet\0agent\0`, "0", "fleet check --offline", true},
			{"7", `/usr/bin/guard\0fleet\0agent\0`, "2", "fleet check --offline", false},
			{"7", `guard\0fleet\0--config\0/srv/a b*.toml\0agent\0--socket\0/run/x\0--socket=/run/y\0`, "2", "fleet --config /srv/a b*.toml check --offline", false},
		} {
			out, errs := runScript(t, script, args, "PID="+c.pid, "COMMAND="+c.command, "CODE="+c.code)
			if !strings.Contains(out, "try-restart criguard.service\n") || strings.Contains(out, restart) != c.restarts {
				t.Errorf("%s, agent started with %q: %s", script, c.command, out)
			}
			if strings.Contains(errs, "criguard: fleet.toml has mistakes;") == c.restarts || c.checks != "" && !strings.Contains(errs, "checks "+c.checks+"\n") || strings.Contains(errs, "checks fleet") != (c.checks != "") {
				t.Errorf("%s, agent started with %q: %s", script, c.command, errs)
			}
		}
	}
}

// If a removal fails, the guard that prerm has stopped is started again.
func TestPackageScriptUndoesARemoval(t *testing.T) {
	for args, starts := range map[string]bool{"abort-remove": true, "abort-upgrade 1.2.3-1": false, "configure": false, "configure 1.2.3-1": false} {
		out, _ := runScript(t, "deb/postinst", args, "PID=0", "CODE=0")
		if strings.Contains(out, " start criguard.service criguard-fleet.socket criguard-fleet.service\n") != starts {
			t.Errorf("%s: %s", args, out)
		}
	}
}

// runScript runs a script of a package as if systemd ran, and returns what it does with the units, and its errors with the checks of
// files. PID and COMMAND are those of the fleet's agent, CODE is the exit code of a check of its file.
func runScript(t *testing.T, script, args string, env ...string) (out, errs string) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("script", strings.ReplaceAll(string(text), "/run/systemd/system", "/"))
	for _, name := range []string{"systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper", "journalctl"} {
		write(name, "#!/bin/sh\n")
	}
	write("deb-systemd-invoke", "#!/bin/sh\necho systemctl \"$@\"\n")
	cmd := exec.Command("sh", "-c", `set -- `+args+`
		systemctl() { case "$1 $4" in "show criguard-fleet.service") echo "$PID" ;; show*) echo 0 ;; *) echo systemctl "$@" ;; esac; }
		cat() { case $1 in /proc/0/cmdline) return 1 ;; /proc/7/cmdline) printf "$COMMAND" ;; /run/criguard.removed) ;; *) echo "$1" ;; esac; }
		criguard() { echo checks "$@" >&2; [ "$1" != fleet ] || return "$CODE"; }
		. "$SCRIPT"`)
	cmd.Env = append(env, "PATH="+dir+":/usr/bin:/bin", "SCRIPT="+filepath.Join(dir, "script"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Errorf("%s %s: %v", script, args, err)
	}
	return string(b), stderr.String()
}

// A removal takes nothing from a criguard that runs in a pod.
func TestPackageScriptsKeepThePodsFiles(t *testing.T) {
	for script, args := range map[string]string{"deb/postrm": "purge", "rpm/postun": "0"} {
		for code, stays := range map[string]bool{"0": false, "1": true, "66": false} { // 66: there is no such directory
			cmd := exec.Command("sh", "-c", `set -- `+args+`
				flock() { return "$CODE"; }
				rm() { echo rm "$@"; }
				rmdir() { :; }
				systemctl() { :; }
				journalctl() { :; }
				. ./`+script)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "CODE=" + code}
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || strings.Contains(string(out), "rm -rf ") == stays || strings.Contains(errs.String(), "another criguard runs, as in a pod:") != stays {
				t.Errorf("%s, flock exits with %s: %v, %s%s", script, code, err, out, errs.String())
			}
		}
	}
}

// A guard that a removal has stopped runs again when the package is installed again.
func TestPackageScriptStartsWhatRan(t *testing.T) {
	for active, want := range map[string]string{"criguard.service": "start criguard.service\n", "": ""} {
		dir := t.TempDir()
		out := ""
		for _, step := range [][2]string{{"prerm", "remove"}, {"postinst", "configure 1.2.3-1"}} {
			text, err := os.ReadFile("deb/" + step[0])
			if err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(dir, step[0])
			text = []byte(strings.NewReplacer("/run/systemd/system", "/", "/run/criguard.removed", filepath.Join(dir, "removed")).Replace(string(text)))
			if err := os.WriteFile(script, text, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "-c", `set -- `+step[1]+`
				systemctl() { case $1 in is-active) [ "$3" = "$ACTIVE" ] ;; show) echo 0 ;; esac; }
				for f in sysusers tmpfiles; do ln -sf /bin/true "$DIR/systemd-$f"; done
				for f in deb-systemd-helper journalctl criguard; do ln -sf /bin/true "$DIR/$f"; done
				printf '#!/bin/sh\necho "$@"\n' >"$DIR/deb-systemd-invoke"; chmod +x "$DIR/deb-systemd-invoke"
				. "$DIR/`+step[0]+`"`)
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "ACTIVE=" + active, "DIR=" + dir}
			b, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", step[0], err, b)
			}
			out = string(b)
		}
		started := ""
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "start ") {
				started += line
			}
		}
		if started != want {
			t.Errorf("active %q: starts %q, want %q", active, started, want)
		}
	}
}
