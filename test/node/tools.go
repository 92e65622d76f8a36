package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// tools are the required programs and the Debian packages that contain them.
var tools = []struct{ program, debian string }{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"mmdebstrap", "mmdebstrap"},
	{"mke2fs", "e2fsprogs"},
}

// installTools installs missing programs with apt. Unlike a runtime, qemu is too large to unpack
// next to the system.
func installTools(ctx context.Context) error {
	var missing []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool.program); err != nil {
			missing = append(missing, tool.debian)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	packages := strings.Join(missing, " ")
	hint := fmt.Sprintf("(hint: on Debian, apt-get install --no-install-recommends %s)", packages)
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("find %s: needs root and apt to install them %s", packages, hint)
	}
	say("installing %s", packages)
	for _, args := range [][]string{
		{"-q", "update"},
		append([]string{"-q", "-y", "--no-install-recommends", "install"}, missing...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := run(cmd); err != nil {
			return fmt.Errorf("install %s: %w %s", packages, err, hint)
		}
	}
	return nil
}

// run runs a command and adds the end of its output to the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, text[max(0, len(text)-500):])
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("node: "+format+"\n", args...) }
