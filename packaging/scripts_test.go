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
				systemctl() { case $1 in show) echo "$PID" ;; esac; }
				cat() { case $1 in /proc/0/cmdline) return 1 ;; /proc/7/cmdline) printf "$COMMAND" ;; *) echo "$1" ;; esac; }
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
