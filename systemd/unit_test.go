package systemd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/criguard/criguard/test/need"
)

// unit is a parsed unit file: the values by "Section.Key", in their order. An empty assignment clears
// the earlier ones (systemd.syntax(7)).
type unit map[string][]string

func readUnit(t *testing.T) (u unit, text string) {
	t.Helper()
	return readUnitFile(t, "criguard.service")
}

func readUnitFile(t *testing.T, name string) (u unit, text string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	u = unit{}
	section := ""
	for i, line := range strings.Split(string(b), "\n") {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || section == "" {
				t.Fatalf("line %d: %q", i+1, line)
			}
			key = section + "." + key
			if value == "" {
				u[key] = []string{}
			} else {
				u[key] = append(u[key], value)
			}
		}
	}
	return u, string(b)
}

func (u unit) words(key string) []string { return strings.Fields(strings.Join(u[key], " ")) }

func TestUnitSays(t *testing.T) {
	u, _ := readUnit(t)
	for _, c := range []struct{ key, want, why string }{
		{"Service.Type", "notify", "READY=1 says when the node is guarded; notify-reload needs systemd 253"},
		{"Service.ExecStart", "/usr/bin/criguard run", "the service"},
		{"Service.ExecReload", "/bin/kill -HUP $MAINPID", "reload without notify-reload"},
		{"Service.Restart", "always", "a guard that ended guards nothing"},
		{"Service.RestartSec", "2", "soon"},
		{"Unit.StartLimitIntervalSec", "0", "and for ever"},
		{"Service.WatchdogSec", "30", "a hung loop is restarted"},
		{"Service.OOMScoreAdjust", "-999", "the kernel kills it last"},
		{"Service.OOMPolicy", "continue", "the OOM killer prefers a hook's program, and must not end the guard with it"},
		{"Service.LimitMEMLOCK", "infinity", "mlockall with MCL_FUTURE fails mappings beyond it"},
		{"Service.MemoryMin", "32M", "kept from reclaim"},
		{"Service.Environment", "GOMEMLIMIT=24MiB", "bounded"},
		{"Service.Slice", "system.slice", "accounted as a service of the system, never a pod"},
		{"Service.RuntimeDirectory", "criguard", "socket, lock, budget"},
		{"Service.RuntimeDirectoryPreserve", "yes", "a crash loop must not refill the budget"},
		{"Service.ProtectSystem", "strict", "writes nowhere else"},
		{"Service.ProtectControlGroups", "no", "cgroup.kill, event_control and memory.reclaim are written to"},
		{"Service.ProcSubset", "all", "meminfo and pressure are read"},
		{"Service.ProtectProc", "default", "others' processes are read"},
		{"Service.PrivateMounts", "yes", "a slave of the host's mounts, which sees later ones"},
		{"Service.TemporaryFileSystem", "/tmp:mode=1777,size=16M", "private without a disk, and nothing else that is measured is hidden"},
		{"Service.DevicePolicy", "closed", "private devices without a disk"},
		{"Service.ReadOnlyPaths", "/dev", "cgroups are written to"},
		{"Service.ProtectHome", "read-only", "a runtime's images may live there: hidden, statfs would measure something else"},
		{"Service.NoNewPrivileges", "yes", "hardening"},
		{"Service.MemoryDenyWriteExecute", "yes", "hardening"},
		{"Service.IPAddressDeny", "any", "nothing depends on a network"},
		{"Service.IPAddressAllow", "localhost", "metrics"},
		{"Service.SystemCallArchitectures", "native", "hardening"},
		{"Install.WantedBy", "multi-user.target", "starts at boot"},
	} {
		if got := strings.Join(u[c.key], " "); got != c.want {
			t.Errorf("%s=%s, want %s: %s", c.key, got, c.want, c.why)
		}
	}
}

// Settings that would prevent criguard from starting or hide what it measures.
func TestUnitNeverSays(t *testing.T) {
	u, _ := readUnit(t)
	for key, why := range map[string]string{
		"Unit.Requires":                    "a runtime that is down must not take the guard with it",
		"Unit.Requisite":                   "as Requires",
		"Unit.BindsTo":                     "as Requires",
		"Unit.PartOf":                      "a runtime's restart must not restart the guard",
		"Unit.After":                       "k3s without its server never counts as started",
		"Unit.Wants":                       "would start a runtime that was switched off",
		"Unit.ConditionPathExists":         "the guard works without a runtime and without its configuration",
		"Service.StateDirectory":           "fails the start on a read-only disk",
		"Service.LogsDirectory":            "fails the start on a read-only disk",
		"Service.MountFlags":               "private would hide filesystems mounted later",
		"Service.PrivateNetwork":           "metrics on loopback",
		"Service.PrivateUsers":             "capabilities would not reach containers",
		"Service.ProtectHostname":          "hooks would report the name that the node had at the start",
		"Service.PrivatePIDs":              "the node's processes would be hidden",
		"Service.RootDirectory":            "the node's filesystems are measured",
		"Service.InaccessiblePaths":        "the node's filesystems are measured",
		"Service.PrivateTmp":               "fails the start if the disk is full, read-only or not mounted",
		"Service.PrivateDevices":           "writes to /tmp at the start, as PrivateTmp",
		"Service.MemoryMax":                "the guard must not be killed by a limit of its own",
		"Service.User":                     "cgroup files and runtime sockets are root's",
		"Service.StartLimitBurst":          "no limit on starts",
		"Service.RestartPreventExitStatus": "a Go program that crashes exits with 2, as with a wrong configuration",
	} {
		if got, says := u[key]; says {
			t.Errorf("%s=%s: %s", key, strings.Join(got, " "), why)
		}
	}
}

func TestUnitCapabilities(t *testing.T) {
	u, text := readUnit(t)
	got := u.words("Service.CapabilityBoundingSet")
	want := []string{"CAP_KILL", "CAP_SYS_RESOURCE", "CAP_DAC_READ_SEARCH"}
	if !slices.Equal(got, want) {
		t.Errorf("capabilities %v, want %v", got, want)
	}
	for _, c := range got {
		if !strings.Contains(text, "\n#   "+c+" ") {
			t.Errorf("no comment says what %s is for", c)
		}
	}
}

func TestUnitWritesWhereItMust(t *testing.T) {
	u, _ := readUnit(t)
	paths := u.words("Service.ReadWritePaths")
	for _, want := range []string{"/var/lib/criguard", "/var/log/pods"} {
		// The dash lets the service start even if the path is missing.
		if !slices.Contains(paths, "-"+want) {
			t.Errorf("ReadWritePaths=%v has no -%s", paths, want)
		}
	}
	b, err := os.ReadFile("criguard.tmpfiles")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if path = strings.TrimPrefix(path, "-"); !strings.Contains(string(b), "\nd "+path+" ") {
			t.Errorf("tmpfiles does not make %s", path)
		}
	}
}

func TestUnitGroupIsMade(t *testing.T) {
	u, _ := readUnit(t)
	b, err := os.ReadFile("criguard.sysusers")
	if err != nil {
		t.Fatal(err)
	}
	groups := u.words("Service.SupplementaryGroups")
	if len(groups) != 1 {
		t.Errorf("SupplementaryGroups=%v, want one", groups)
	}
	for _, g := range groups {
		if !strings.Contains(string(b), "\ng "+g+" ") {
			t.Errorf("sysusers does not make group %s", g)
		}
	}
}

func TestUnitsVerified(t *testing.T) {
	analyze := need.Program(t, "systemd-analyze")
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"criguard.service", "criguard-fleet.service", "criguard-fleet.socket"} {
		_, text := readUnitFile(t, name)
		// The tool checks that the binary exists; this one does.
		text = strings.Replace(text, "/usr/bin/criguard ", os.Args[0]+" ", 1)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	out, err := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, paths...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "criguard") {
		t.Errorf("verify: %v\n%s", err, out)
	}
}

// The unit allows the system calls that a kill needs, and those that start, watch and end hooks. It
// denies those with which a process could change its user.
func TestUnitSystemCalls(t *testing.T) {
	analyze := need.Program(t, "systemd-analyze")
	u, _ := readUnit(t)
	allowed := map[string]bool{}
	for _, line := range u["Service.SystemCallFilter"] {
		names, deny := strings.CutPrefix(line, "~")
		for name := range strings.FieldsSeq(names) {
			for _, call := range systemCalls(t, analyze, name) {
				allowed[call] = !deny
			}
		}
	}
	for _, call := range systemCalls(t, analyze, "@default") {
		allowed[call] = true // always allowed
	}
	for _, unit := range []string{"criguard.service", "criguard-fleet.service"} {
		u, _ := readUnitFile(t, unit)
		if !slices.Contains(u["Service.SystemCallFilter"], "futex_time64") {
			t.Errorf("%s does not name futex_time64, which old versions of @default lack", unit)
		}
	}
	for call, want := range map[string]bool{
		"pidfd_send_signal": true, "process_mrelease": true,
		"execve": true, "clone": true, "clone3": true, "vfork": true, "pipe2": true, "dup3": true, "setpgid": true, "setsid": true, "waitid": true,
		"wait4": true, "kill": true, "pidfd_open": true, "setpriority": true, "socket": true, "connect": true,
		"setuid": false, "setresuid": false, "setgroups": false, "mount": false, "ptrace": false, "bpf": false, "reboot": false, "init_module": false,
	} {
		if allowed[call] != want {
			t.Errorf("%s is allowed: %t", call, allowed[call])
		}
	}
}

// systemCalls returns the calls of a group, including nested groups, or the single call of that name.
func systemCalls(t *testing.T, analyze, name string) (calls []string) {
	t.Helper()
	if !strings.HasPrefix(name, "@") {
		return []string{name}
	}
	out, err := exec.CommandContext(t.Context(), analyze, "syscall-filter", "--no-pager", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && line != name && line[0] != '#' {
			calls = append(calls, systemCalls(t, analyze, line)...)
		}
	}
	return calls
}

var exposure = regexp.MustCompile(`exposure \*\*(\d)\.(\d) of 10\*\*`)

// systemd rates the units as their documents say, or better.
func TestUnitExposure(t *testing.T) {
	analyze := need.Program(t, "systemd-analyze")
	for name, document := range map[string]string{"criguard.service": "../docs/security.md", "criguard-fleet.service": "../docs/fleet.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		m := exposure.FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s does not say the exposure of %s", document, name)
		}
		tenths := fmt.Sprintf("%s%s", m[1], m[2])
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--no-pager", "--offline=true", "--threshold="+tenths, name).CombinedOutput()
		if err != nil {
			t.Errorf("exposure of %s above %s tenths: %v\n%s", name, tenths, err, out)
		}
	}
}

func TestSysusersAndTmpfilesWork(t *testing.T) {
	sysusers, tmpfiles := need.Program(t, "systemd-sysusers"), need.Program(t, "systemd-tmpfiles")
	need.Root(t)
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	applyFile(t, root, "criguard.sysusers", sysusers)
	applyFile(t, root, "criguard.tmpfiles", tmpfiles, "--create")
	group, err := os.ReadFile(filepath.Join(root, "etc/group"))
	if err != nil || !strings.Contains(string(group), "criguard:") {
		t.Errorf("groups %q, %v", group, err)
	}
	user, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(user), "criguard-fleet:") {
		t.Errorf("users %q, %v", user, err)
	}
	for _, dir := range []string{"var/lib/criguard", "var/log/pods"} {
		if st, err := os.Stat(filepath.Join(root, dir)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", dir, st, err)
		}
	}
}

// applyFile runs a tool of systemd on a file, below another root.
func applyFile(t *testing.T, root, file, tool string, args ...string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	cmd := exec.CommandContext(t.Context(), tool, append(args, "--root="+root, "-")...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", tool, err, out)
	}
}

// The pod logs are the kubelet's: an administrator may have closed them to other users, or given them to a group.
func TestTmpfilesLeavePodLogsAlone(t *testing.T) {
	tmpfiles := need.Program(t, "systemd-tmpfiles")
	need.Root(t)
	root := t.TempDir()
	logs := filepath.Join(root, "var/log/pods")
	const gid = 4
	if err := errors.Join(os.MkdirAll(logs, 0o750), os.Chown(logs, 0, gid)); err != nil {
		t.Fatal(err)
	}
	applyFile(t, root, "criguard.tmpfiles", tmpfiles, "--create")
	st, err := os.Stat(logs)
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := st.Sys().(*syscall.Stat_t); !ok || st.Mode().Perm() != 0o750 || owner.Gid != gid {
		t.Errorf("pod logs are now %s, %+v", st.Mode(), st.Sys())
	}
}
