package package_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	configPath = "/etc/criguard/config.toml"
	enabled    = "/etc/systemd/system/multi-user.target.wants/criguard.service"
	later      = "1.2.4-1"
)

// laterDist holds the packages of amd64 in the later version, built once.
var laterDist = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(dist, "later")
	return dir, makePackages(context.Background(), root, dir, "v1.2.4", "amd64")
})

func laterPackages(t *testing.T) string {
	t.Helper()
	dir, err := laterDist()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// An administrator's actions with the package, in sequence.
func TestDebLifecycle(t *testing.T) {
	r := openRoom(t)
	before := r.listing()
	deb := r.put(all[0].debFile())

	if out := r.do("dpkg", "-i", deb); strings.Contains(out, "mistake") {
		t.Errorf("installation says %s", out)
	}
	r.installed()
	if r.there(enabled) || strings.Contains(r.do("find", "/etc/systemd"), "criguard") {
		t.Error("the installation enabled the service")
	}
	if out, _ := r.try("systemctl", "--root=/", "is-enabled", "criguard.service"); out != "disabled" {
		t.Errorf("the service is %s", out)
	}

	// An upgrade replaces an unedited default configuration and keeps an edited one.
	r.do("dpkg", "-i", r.repack(deb, later, "# of the next version"))
	if !strings.Contains(r.text(configPath), "# of the next version") {
		t.Error("a new default did not come with the upgrade")
	}
	edited := "mode = \"enforce\"\n"
	r.configure(edited)
	r.do("systemctl", "--root=/", "enable", "criguard.service")
	r.do("dpkg", "--force-confold", "-i", r.repack(deb, "1.2.5-1", "# of the version after"))
	if got := r.text(configPath); got != edited {
		t.Errorf("the upgrade changed the configuration to %q", got)
	}
	if !r.there(enabled) {
		t.Error("the upgrade disabled the service")
	}

	// A mistake in the configuration is reported but does not stop the upgrade.
	r.configure("mode = \"obseve\"\n")
	out := r.do("dpkg", "--force-confold", "-i", r.repack(deb, "1.2.6-1", "# of a later version"))
	if !strings.Contains(out, `did you mean "observe"?`) || !strings.Contains(out, "the configuration has mistakes") {
		t.Errorf("the upgrade says nothing of the mistake: %s", out)
	}
	if got := strings.Fields(r.do("dpkg", "-s", "criguard")); !slices.Contains(got, "1.2.6-1") || !slices.Contains(got, "installed") {
		t.Errorf("after the upgrade %v", got)
	}

	// Removal and reinstallation keep everything as it was.
	r.configure(edited)
	r.do("dpkg", "-r", "criguard")
	if r.there("/usr/bin/criguard") || r.text(configPath) != edited {
		t.Error("the removal left the binary, or took the configuration")
	}
	r.do("dpkg", "--force-confold", "-i", deb)
	if r.text(configPath) != edited || !r.there(enabled) {
		t.Error("the second installation changed the configuration or disabled the service")
	}

	// A purge also removes files that the service and its administrator have created.
	for _, path := range []string{"/var/lib/criguard/ledger.json", "/run/criguard/budget.json", "/etc/criguard/config.toml.orig"} {
		if err := os.MkdirAll(filepath.Dir(r.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.Path(path), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.do("dpkg", "-P", "criguard")
	if left := difference(before, r.listing()); len(left) > 0 {
		t.Errorf("the purge left or took:\n%s", strings.Join(left, "\n"))
	}
}

func TestRPMLifecycle(t *testing.T) {
	r := openRoom(t)
	dir := laterPackages(t)
	r.do("mkdir", "-p", "/usr/share/licenses", "/usr/share/zsh/site-functions") // rpm-based systems have them
	before := r.listing()
	// dpkg manages this root: rpm knows none of its packages.
	r.do("rpm", "-i", "--nodeps", r.put(all[0].rpmFile()))
	r.installed()
	edited := "mode = \"enforce\"\n"
	r.configure(edited)
	r.do("systemctl", "--root=/", "enable", "criguard.service")
	r.do("rpm", "-U", "--nodeps", r.put(filepath.Join(dir, "criguard-"+later+".x86_64.rpm")))
	if got := r.do("rpm", "-q", "criguard"); got != "criguard-"+later+".x86_64" {
		t.Errorf("after the upgrade %s", got)
	}
	if r.text(configPath) != edited || !r.there(enabled) || !r.there("/usr/bin/criguard") {
		t.Error("the upgrade changed the configuration, disabled the service or took the binary")
	}
	r.do("rpm", "-e", "criguard")
	if got := r.text(configPath + ".rpmsave"); got != edited {
		t.Errorf("the removal left %q of the configuration", got)
	}
	if err := os.RemoveAll(r.Path("/etc/criguard")); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(difference(before, r.listing()), func(line string) bool {
		return strings.HasSuffix(line, " /var/lib/criguard") || strings.HasSuffix(line, " /var/log/pods")
	})
	if len(left) > 0 {
		t.Errorf("the removal left or took:\n%s", strings.Join(left, "\n"))
	}
}

// With systemd running, an installation starts nothing, an upgrade restarts a running service, and
// a removal stops it.
func TestServiceIsTold(t *testing.T) {
	r := openRoom(t)
	dir := laterPackages(t)
	r.write("systemctl", "#!/bin/sh\ncase $* in *is-enabled*) echo enabled ;; show* | *is-active*) ;; *) echo \"$@\" >>"+r.tmp+"/calls ;; esac\n", 0o755) // to ask tells it nothing
	r.path = r.tmp
	if err := r.ServicesStart(); err != nil {
		t.Fatal(err)
	}
	path := "--define=_install_script_path " + r.tmp + ":/usr/sbin:/usr/bin:/sbin:/bin"
	for _, step := range []struct {
		what, want string
		command    []string
	}{
		{"install deb", "--system daemon-reload", []string{"dpkg", "-i", r.put(all[0].debFile())}},
		{"upgrade deb", "--system daemon-reload; try-restart criguard.service; try-restart criguard-fleet.service", []string{"dpkg", "-i", r.put(filepath.Join(dir, "criguard_"+later+"_amd64.deb"))}},
		{"remove deb", "stop criguard.service criguard-fleet.socket criguard-fleet.service; --system daemon-reload", []string{"dpkg", "-r", "criguard"}},
		{"install deb after a removal", "--system daemon-reload; --quiet --system start criguard.service criguard-fleet.socket criguard-fleet.service", []string{"dpkg", "-i", r.put(all[0].debFile())}},
		{"remove deb again", "stop criguard.service criguard-fleet.socket criguard-fleet.service; --system daemon-reload", []string{"dpkg", "-r", "criguard"}},
		{"purge deb", "", []string{"dpkg", "-P", "criguard"}},
		{"install rpm", "daemon-reload", []string{"rpm", "-i", "--nodeps", path, r.put(all[0].rpmFile())}},
		{"upgrade rpm", "daemon-reload; try-restart criguard.service; try-restart criguard-fleet.service; daemon-reload", []string{"rpm", "-U", "--nodeps", path, r.put(filepath.Join(dir, "criguard-"+later+".x86_64.rpm"))}},
		{"remove rpm", "--no-reload disable --now criguard.service criguard-fleet.socket criguard-fleet.service; daemon-reload", []string{"rpm", "-e", path, "criguard"}},
	} {
		r.do(step.command[0], step.command[1:]...)
		calls := strings.ReplaceAll(strings.TrimSpace(r.text(r.tmp+"/calls")), "\n", "; ")
		if calls != step.want {
			t.Errorf("%s: systemctl was told %q, want %q", step.what, calls, step.want)
		}
		if err := os.RemoveAll(r.Path(r.tmp + "/calls")); err != nil {
			t.Fatal(err)
		}
	}
}

// installed checks what both kinds of package set up.
func (r *room) installed() {
	r.Helper()
	if out := r.do("criguard", "version"); !strings.HasPrefix(out, "criguard "+version+" ") {
		r.Errorf("the binary is %s", out)
	}
	if !strings.Contains(r.text("/etc/group"), "\ncriguard:x:") {
		r.Error("there is no group criguard")
	}
	if st, err := os.Stat(r.Path("/var/lib/criguard")); err != nil || st.Mode() != fs.ModeDir|0o755 {
		r.Errorf("/var/lib/criguard: %v, %v", st, err)
	}
	if out := r.do("criguard", "check"); !strings.Contains(out, `mode = "observe"`) {
		r.Errorf("in force is\n%s", out)
	}
	if out := r.do("journalctl", "--list-catalog"); !strings.Contains(out, "criguard: ") {
		r.Error("the journal's catalog does not know criguard")
	}
	if out := r.do("man", "-w", "criguard"); out != "/usr/share/man/man1/criguard.1.gz" {
		r.Errorf("the man page is %s", out)
	}
}

func (r *room) configure(text string) {
	r.Helper()
	if err := os.WriteFile(r.Path(configPath), []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

// repack builds a later version of a package with an additional line at the end of its
// configuration.
func (r *room) repack(deb, version, line string) string {
	r.Helper()
	dir, to := r.tmp+"/repack", fmt.Sprintf("%s/criguard_%s.deb", r.tmp, version)
	r.do("sh", "-ec", `
		rm -rf "$1"
		dpkg-deb -R "$2" "$1"
		sed -i "s/^Version: .*/Version: $3/" "$1/DEBIAN/control"
		echo "$4" >>"$1/etc/criguard/config.toml"
		dpkg-deb -Znone -b "$1" "$5"`, "repack", dir, deb, version, line, to)
	return to
}

// clean removes what an interrupted test or a removal has left.
func (r *room) clean() {
	r.do("sh", "-ec", `
		! dpkg -s criguard >/dev/null 2>&1 || dpkg -P criguard
		! rpm -q criguard >/dev/null 2>&1 || rpm -e criguard
		rm -rf /var/lib/criguard /etc/criguard /run/criguard /var/log/pods /usr/share/doc/criguard /usr/share/licenses/criguard`)
}

// volatile lists paths that change with every package operation or belong to the test: the
// databases of dpkg and rpm, the index of man pages, and the group, which stays.
var volatile = []string{
	"/var/lib/dpkg", "/var/log/dpkg.log", "/var/log/alternatives.log", "/var/cache/man", "/var/lib/rpm", "/tmp", "/root", "/proc",
	"/etc/group", "/etc/group-", "/etc/gshadow", "/etc/gshadow-", "/etc/.pwd.lock",
}

// listing returns every file of the room with mode, size and target.
func (r *room) listing() map[string]string {
	r.Helper()
	list := map[string]string{}
	base := r.Path("/")
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, filepath.Clean(base))
		if slices.Contains(volatile, name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		says := info.Mode().String()
		if info.Mode().IsRegular() {
			says += fmt.Sprint(" ", info.Size())
		}
		if target, err := os.Readlink(path); err == nil {
			says += " -> " + target
		}
		list[name] = says
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return list
}

// difference lists files that are in only one of the listings or differ between them.
func difference(before, after map[string]string) []string {
	var lines []string
	for name, says := range before {
		if now, ok := after[name]; !ok {
			lines = append(lines, "gone: "+name)
		} else if now != says {
			lines = append(lines, fmt.Sprintf("was %s, is %s: %s", says, now, name))
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			lines = append(lines, "left: "+name)
		}
	}
	slices.Sort(lines)
	return lines
}
