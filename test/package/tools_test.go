package package_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestLintian(t *testing.T) {
	r := openRoom(t)
	deb := r.put(all[0].debFile()) // the others differ only in the binary
	if out, err := r.try("lintian", "--allow-root", "--no-user-dirs", "--pedantic", "--fail-on", "error,warning,pedantic", deb); err != nil || out != "" {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

func TestScriptsLint(t *testing.T) {
	r := openRoom(t)
	for _, pattern := range []string{"deb/p*", "rpm/p*"} {
		files, err := filepath.Glob(filepath.Join(root, "packaging", pattern))
		if err != nil || len(files) != 3 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if out, err := r.try("shellcheck", "--shell=sh", r.put(file)); err != nil || out != "" {
				t.Errorf("%s: %v\n%s", file, err, out)
			}
		}
	}
}

// The man pages are valid for both man page formatters.
func TestManPages(t *testing.T) {
	r := openRoom(t)
	pages, err := filepath.Glob(filepath.Join(root, "systemd/*.[1-8]"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		file := r.put(page)
		if out, err := r.try("mandoc", "-Tlint", "-Wwarning", file); err != nil || out != "" {
			t.Errorf("mandoc: %v\n%s", err, out)
		}
		out, err := r.try("sh", "-c", "man --warnings -E UTF-8 -l -Tutf8 -Z "+file+" 2>&1 >/dev/null")
		if err != nil || out != "" {
			t.Errorf("man %s: %v\n%s", page, err, out)
		}
		if out := r.do("mandoc", "-Thtml", file); !strings.Contains(out, `id="NAME"`) {
			t.Errorf("mandoc: %s", out)
		}
	}
}

// foreign describes how to run each architecture's binaries: Go's platform name, the emulator, and
// a CPU. For ARM, it is the oldest supported CPU, without later instructions.
var foreign = map[string]struct {
	platform, qemu, cpu string
}{
	"amd64":   {"linux/amd64", "qemu-x86_64-static", "qemu64"},
	"arm64":   {"linux/arm64", "qemu-aarch64-static", "cortex-a53"},
	"armv7":   {"linux/arm", "qemu-arm-static", "cortex-a7"},
	"armv6":   {"linux/arm", "qemu-arm-static", "arm1176"}, // in the Raspberry Pi 1 and Zero
	"riscv64": {"linux/riscv64", "qemu-riscv64-static", "rv64"},
}

// Every architecture's binary runs and decides like this machine's: amounts beyond 32 bits give the
// same result.
func TestForeignBinaries(t *testing.T) {
	r := openRoom(t)
	trace, err := os.ReadFile("testdata/trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	native := filepath.Join(dist, "bin", "criguard")
	simulate := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), args[0], append(args[1:], "simulate", "-c", filepath.Join(root, "config.example.toml"), "-")...)
		cmd.Stdin = strings.NewReader(string(trace))
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v simulate: %v", args, err)
		}
		return string(out)
	}
	want := simulate(native)
	if !strings.Contains(want, `"stop":{"pod":"default/large"`) || !strings.Contains(want, `"reclaimed":["`) {
		t.Fatalf("the trace shows too little:\n%s", want)
	}
	for _, p := range all {
		on := foreign[p.name]
		emulated := []string{r.Path("/usr/bin/" + on.qemu), "-cpu", on.cpu, filepath.Join(dist, "bin", p.name, "criguard")}
		out, err := exec.CommandContext(t.Context(), emulated[0], append(emulated[1:], "version")...).CombinedOutput()
		if said := strings.TrimSpace(string(out)); err != nil ||
			!strings.HasPrefix(said, "criguard "+version+" (go") || !strings.HasSuffix(said, ", "+on.platform+")") {
			t.Errorf("%s: %v, %q", p.name, err, out)
		}
		if got := simulate(emulated...); got != want {
			t.Errorf("%s decides otherwise:\n%s\nwant\n%s", p.name, got, want)
		}
	}
}
