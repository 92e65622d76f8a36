package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// machine is what a test may need and not find.
type machine struct {
	kernel  [2]int // as of uname
	systemd int    // release of the systemd tools, 0 without
	init    bool   // systemd is PID 1
	root    bool
	caps    uint64  // effective capabilities, a bit each
	memory  [3]bool // by version: the cgroup memory controller is there
	swap    bool
	exists  func(path string) bool
}

// capabilities that tests may need, by their bit; see capabilities(7).
func capabilityBit(name string) (int, bool) {
	i := slices.Index([]string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
		"CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN",
		"CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
	}, name)
	return i, i >= 0
}

var needs = regexp.MustCompile(`\bneeds (?:` +
	`(linux|kernel) (\d+)\.(\d+)|` +
	`(cgroup v)([12])|` +
	`(systemd) as PID 1|` +
	`(systemd) (\d+)|` +
	`(root)\b|` +
	`(CAP_[A-Z_]+)|` +
	`(PSI)\b|` +
	`(swap)\b|` +
	`(/(?:dev|proc|sys)/[\w./-]+))`)

// excuse looks in what a skipped test said for a need that this machine does not
// fill. A need that it does fill excuses nothing: the test could have run.
func (m machine) excuse(said string) (lacks string, ok bool) {
	for _, f := range needs.FindAllStringSubmatch(said, -1) {
		if m.lacks(f) {
			return f[0], true
		}
	}
	return "", false
}

func (m machine) lacks(f []string) bool {
	number := func(i int) int { n, _ := strconv.Atoi(f[i]); return n } // digits, as the pattern says
	switch {
	case f[1] != "":
		return slices.Compare(m.kernel[:], []int{number(2), number(3)}) < 0
	case f[4] != "":
		return !m.memory[number(5)]
	case f[6] != "":
		return !m.init
	case f[7] != "":
		return m.systemd < number(8)
	case f[9] != "":
		return !m.root
	case f[10] != "":
		bit, known := capabilityBit(f[10])
		return known && m.caps>>bit&1 == 0
	case f[11] != "":
		return !m.exists("/proc/pressure/memory")
	case f[12] != "":
		return !m.swap
	default:
		return !m.exists(f[13])
	}
}

func thisMachine() machine {
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	m := machine{root: os.Geteuid() == 0, init: exists("/run/systemd/system"), exists: exists, systemd: systemdRelease()}
	text := func(path string) string { b, _ := os.ReadFile(path); return string(b) } // what cannot be read is lacking
	m.memory[1] = exists("/sys/fs/cgroup/memory/memory.usage_in_bytes")
	m.memory[2] = slices.Contains(strings.Fields(text("/sys/fs/cgroup/cgroup.controllers")), "memory")
	m.swap = strings.Count(text("/proc/swaps"), "\n") > 1
	if _, rest, ok := strings.Cut(text("/proc/self/status"), "\nCapEff:\t"); ok {
		hex, _, _ := strings.Cut(rest, "\n")
		m.caps, _ = strconv.ParseUint(hex, 16, 64)
	}
	_, _ = fmt.Sscanf(text("/proc/sys/kernel/osrelease"), "%d.%d", &m.kernel[0], &m.kernel[1])
	return m
}

// systemdRelease is the first number that `systemd-analyze --version` prints.
func systemdRelease() int {
	out, err := exec.Command("systemd-analyze", "--version").Output()
	if err != nil {
		return 0
	}
	var release int
	_, _ = fmt.Sscanf(string(out), "systemd %d", &release)
	return release
}
