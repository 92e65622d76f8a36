package package_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// packaged is one architecture: its name in the build, its package files, and the architecture
// names in them.
type packaged struct{ name, deb, debArch, rpm, rpmArch string }

const packagedVersion = "1.2.3+git4.0123456789ab-1"

var all = []packaged{
	{"amd64", "amd64", "amd64", "x86_64", "x86_64"},
	{"arm64", "arm64", "arm64", "aarch64", "aarch64"},
	{"armv7", "armhf", "armhf", "armv7hl", "armv7hl"},
	{"armv6", "armv6", "armhf", "armv6hl", "armv6hl"},
	{"riscv64", "riscv64", "riscv64", "riscv64", "riscv64"},
}

func (p packaged) debFile() string {
	return filepath.Join(dist, fmt.Sprintf("criguard_%s_%s.deb", packagedVersion, p.deb))
}

func (p packaged) rpmFile() string {
	return filepath.Join(dist, fmt.Sprintf("criguard-%s.%s.rpm", packagedVersion, p.rpm))
}

// everywhere lists the files in both kinds of package, with their modes.
var everywhere = map[string]string{
	"/usr/bin/criguard":                                  "-rwxr-xr-x",
	"/etc/criguard/":                                     "drwxr-xr-x",
	"/etc/criguard/config.toml":                          "-rw-r--r--",
	"/usr/lib/systemd/system/criguard.service":           "-rw-r--r--",
	"/usr/lib/systemd/system/criguard-fleet.service":     "-rw-r--r--",
	"/usr/lib/systemd/system/criguard-fleet.socket":      "-rw-r--r--",
	"/usr/share/doc/criguard/fleet.example.toml":         "-rw-r--r--",
	"/usr/lib/systemd/catalog/criguard.catalog":          "-rw-r--r--",
	"/usr/lib/sysusers.d/criguard.conf":                  "-rw-r--r--",
	"/usr/lib/tmpfiles.d/criguard.conf":                  "-rw-r--r--",
	"/usr/share/bash-completion/completions/criguard":    "-rw-r--r--",
	"/usr/share/fish/vendor_completions.d/criguard.fish": "-rw-r--r--",
	"/usr/share/doc/criguard/config.example.toml":        "-rw-r--r--",
}

var inDeb = []string{
	"/usr/share/zsh/vendor-completions/_criguard", "/usr/share/doc/criguard/copyright",
	"/usr/share/doc/criguard/changelog.gz", "/usr/share/doc/criguard/changelog.Debian.gz", "/usr/share/lintian/overrides/criguard",
}

var inRPM = []string{
	"/usr/share/zsh/site-functions/_criguard", "/usr/share/licenses/criguard/LICENSE", "/usr/share/doc/criguard/CHANGELOG.md",
}

// wanted returns the expected content of a package with modes: the lists above, every man page and
// every document of the tree.
func wanted(t *testing.T, more []string) []string {
	t.Helper()
	var list []string
	for path, mode := range everywhere {
		list = append(list, mode+" "+path)
	}
	for _, path := range more {
		list = append(list, "-rw-r--r-- "+path)
	}
	for _, glob := range []struct {
		pattern, mode string
		to            func(name string) string
	}{
		{"systemd/*.[1-8]", "-rw-r--r--", func(name string) string { return "man/man" + name[len(name)-1:] + "/" + name + ".gz" }},
		{"docs/*.md", "-rw-r--r--", func(name string) string { return "doc/criguard/" + name }},
		{"docs/*s.yml", "-rw-r--r--", func(name string) string { return "doc/criguard/" + name }},
		{"docs/*.json", "-rw-r--r--", func(name string) string { return "doc/criguard/" + name }},
		{"docs/examples/*.json", "-rw-r--r--", func(name string) string { return "doc/criguard/examples/" + name }},
		{"docs/examples/*", "-rwxr-xr-x", func(name string) string { return "doc/criguard/examples/" + name }},
	} {
		files, err := filepath.Glob(filepath.Join(root, glob.pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", glob.pattern, len(files), err)
		}
		for _, file := range files {
			if glob.mode == "-rwxr-xr-x" && filepath.Ext(file) != "" {
				continue // not a program
			}
			list = append(list, glob.mode+" /usr/share/"+glob.to(filepath.Base(file)))
		}
	}
	slices.Sort(list)
	return list
}

// debList matches a line of `dpkg-deb -c`: mode, owner, size, date, time, path.
var debList = regexp.MustCompile(`(?m)^(\S+) (\S+) +\d+ 2026-11-21 10:49 \.(/\S*)$`)

func TestDebContents(t *testing.T) {
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			list := output(t, "dpkg-deb", "-c", p.debFile())
			found := debList.FindAllStringSubmatch(list, -1)
			if lines := strings.Count(list, "\n"); len(found) != lines {
				t.Errorf("%d of %d are of the commit's time:\n%s", len(found), lines, list)
			}
			var got []string
			for _, f := range found {
				if f[2] != "root/root" {
					t.Errorf("%s is of %s", f[3], f[2])
				}
				if _, listed := everywhere[f[3]]; listed || !strings.HasSuffix(f[3], "/") {
					got = append(got, f[1]+" "+f[3])
				}
			}
			slices.Sort(got)
			if want := wanted(t, inDeb); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for field, want := range map[string]string{
				"Package": "criguard", "Version": packagedVersion, "Architecture": p.debArch, "Section": "admin",
			} {
				if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", p.debFile(), field)); got != want {
					t.Errorf("%s: %s, want %s", field, got, want)
				}
			}
			if got := output(t, "dpkg-deb", "-I", p.debFile(), "conffiles"); got != "/etc/criguard/config.toml\n" {
				t.Errorf("conffiles %q", got)
			}
		})
	}
}

func TestRPMContents(t *testing.T) {
	r := openRoom(t)
	for _, p := range all {
		file := r.put(p.rpmFile())
		head := r.do("rpm", "-qp", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{LICENSE} %{BUILDTIME} %{BUILDHOST}", file)
		if want := "criguard " + packagedVersion + " " + p.rpmArch + " Apache-2.0 " + epoch + " criguard"; head != want {
			t.Errorf("%s: %s, want %s", p.name, head, want)
		}
		list := r.do("rpm", "-qp", "--qf", `[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILEMTIMES} %{FILENAMES}\n]`, file)
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
			f := strings.Fields(line)
			if f[1] != "root/root" || f[2] != epoch {
				t.Errorf("%s: %s", p.name, line)
			}
			if f[0][0] == 'd' {
				f[3] += "/"
			}
			got = append(got, f[0]+" "+f[3])
		}
		slices.Sort(got)
		want := append(wanted(t, inRPM), "drwxr-xr-x /usr/share/doc/criguard/", "drwxr-xr-x /usr/share/doc/criguard/examples/",
			"drwxr-xr-x /usr/share/licenses/criguard/")
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", p.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := r.do("rpm", "-qp", "--qf", `[%{FILENAMES} %{FILEFLAGS:fflags}\n]`, file); !strings.Contains(got, "/etc/criguard/config.toml cn\n") {
			t.Errorf("%s: the configuration is not config(noreplace):\n%s", p.name, got)
		}
		if got := r.do("rpm", "-K", "--nosignature", file); !strings.Contains(got, "digests OK") {
			t.Errorf("%s: %s", p.name, got)
		}
		if got := strings.Fields(r.do("rpm", "-qp", "--requires", file)); !slices.Contains(got, "systemd") {
			t.Errorf("%s requires %v", p.name, got)
		}
	}
}

// No binary can carry out a template. One that could would have 3 MiB more, because a template may call any exported method,
// and the linker keeps them all; 2 MiB of that would be resident.
func TestNoTemplates(t *testing.T) {
	for _, p := range all {
		binary, err := os.ReadFile(filepath.Join(dist, "bin", p.name, "criguard"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(binary, []byte("main.newRoot")) {
			t.Fatalf("%s: the names of its functions are not found", p.name)
		}
		if bytes.Contains(binary, []byte("text/template.(*state).walk")) {
			t.Errorf("%s: has text/template's execution", p.name)
		}
	}
}

// The packaged configuration is the example in observe mode, without any other difference.
func TestConfigurationObserves(t *testing.T) {
	r := openRoom(t)
	example, err := os.ReadFile(filepath.Join(root, "config.example.toml"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(example), "\nmode = \"enforce\"\n", "\nmode = \"observe\"\n", 1)
	if want == string(example) {
		t.Fatal("the example is in observe mode already")
	}
	r.do("dpkg-deb", "-x", r.put(all[0].debFile()), r.tmp+"/deb")
	if got := r.text(r.tmp + "/deb/etc/criguard/config.toml"); got != want {
		t.Errorf("deb:\n%s", got)
	}
	rpm := r.put(all[0].rpmFile())
	r.do("rpm2archive", rpm)
	r.do("tar", "-C", r.tmp, "-xzf", rpm+".tgz")
	if got := r.text(r.tmp + "/etc/criguard/config.toml"); got != want {
		t.Errorf("rpm:\n%s", got)
	}
}

// output runs a program of the machine and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}
