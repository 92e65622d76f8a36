package main

import (
	"fmt"
	"strings"
)

// arch is an architecture: its own name (GOARCH, with GOARM as a suffix), its name in nfpm, and its
// names in package file names.
type arch struct{ name, nfpm, debFile, rpmFile string }

// arches are the packaged architectures. The ARMv6 deb is armhf, as in Raspberry Pi OS, which runs
// on the boards that need it: Debian's armhf requires ARMv7, and its armel has no floating point
// unit. The two differ in their file names and belong in repositories of different distributions.
var arches = []arch{
	{"amd64", "amd64", "amd64", "x86_64"},
	{"arm64", "arm64", "arm64", "aarch64"},
	{"armv7", "arm7", "armhf", "armv7hl"},
	{"armv6", "arm6", "armv6", "armv6hl"},
	{"riscv64", "riscv64", "riscv64", "riscv64"},
}

func findArch(name string) (arch, error) {
	var names []string
	for _, a := range arches {
		if a.name == name {
			return a, nil
		}
		names = append(names, a.name)
	}
	return arch{}, fmt.Errorf("package for %q: unknown architecture (hint: one of %s)", name, strings.Join(names, ", "))
}
