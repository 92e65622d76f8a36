package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/need"
)

func TestOfPID(t *testing.T) {
	for name, want := range map[string]string{
		"6.18-hybrid-cgroupfs": "/kubepods/burstable/pod6f1c4c8e-2d5c-4f0a-9a6e-0b7f3f1d2c11/3b1e0a",
		"6.1-v2-systemd":       "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1c4c8e_2d5c_4f0a_9a6e_0b7f3f1d2c11.slice/cri-containerd-3b1e0a.scope",
		"5.10-v1-cgroupfs":     "/kubepods/besteffort/pod0b7f3f1d/9c0ffee",
	} {
		pid := 4321
		if name == "5.10-v1-cgroupfs" {
			pid = 777
		}
		l := testTree(t, name)
		if got, err := l.OfPID(pid); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
		if _, err := l.OfPID(5); !errors.Is(err, ErrGone) {
			t.Errorf("%s: a process that ended: %v, want ErrGone", name, err)
		}
	}
}

func TestOOMScoreAdj(t *testing.T) {
	proc := t.TempDir()
	l := Layout{proc: Proc(proc)}
	write(t, proc, map[string]string{"7/oom_score_adj": "-997\n", "8/oom_score_adj": "none\n"})
	if adj, err := l.OOMScoreAdj(7); adj != -997 || err != nil {
		t.Errorf("got %d, %v; want -997", adj, err)
	}
	if adj, err := l.OOMScoreAdj(8); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("no number: %d, %v; want an error", adj, err)
	}
	if _, err := l.OOMScoreAdj(9); !errors.Is(err, ErrGone) {
		t.Errorf("a process that ended: %v, want ErrGone", err)
	}
}

func TestOfPIDOutsideOfTheNamespace(t *testing.T) {
	l := testTree(t, "6.1-v2-systemd")
	proc := t.TempDir()
	l.proc = Proc(proc)
	write(t, proc, map[string]string{"7/cgroup": "0::/../../kubepods.slice\n", "8/cgroup": "2:cpu:/\n"})
	for _, pid := range []int{7, 8} {
		if rel, err := l.OfPID(pid); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("process %d: %q, %v; want an error", pid, rel, err)
		}
	}
}

func TestOfPIDOfThisProcess(t *testing.T) {
	need.Cgroup(t)
	l, err := Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		t.Fatal(err)
	}
	rel, err := l.OfPID(os.Getpid())
	if err != nil || !strings.HasPrefix(rel, "/") {
		t.Fatalf("got %q, %v", rel, err)
	}
}

func TestParseProcessCgroup(t *testing.T) {
	const both = "11:memory:/m\n7:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/u\n"
	for name, c := range map[string]struct {
		in, controller, want string
		ok                   bool
	}{
		"v1":                    {both, "memory", "/m", true},
		"mounted together":      {both, "cpuacct", "/c", true},
		"v2":                    {both, "", "/u", true},
		"absent":                {both, "pids", "", false},
		"v2 is not named":       {"3::/x\n", "", "", false},
		"part of a name":        {"3:memoryx:/x\n", "memory", "", false},
		"colons in the path":    {"3:memory:/a:b:c\n", "memory", "/a:b:c", true},
		"no line end":           {"0::/a", "", "/a", true},
		"no path":               {"0::\n3:memory\n:::\n", "", "", false},
		"a relative path":       {"0::a\n", "", "", false},
		"of a removed cgroup":   {"0::/a (deleted)\n", "", "/a (deleted)", true},
		"above the namespace's": {"0::/../b\n", "", "/../b", true},
		"empty":                 {"", "memory", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseProcessCgroup([]byte(c.in), c.controller); got != c.want || ok != c.ok {
				t.Errorf("got %q, %t; want %q, %t", got, ok, c.want, c.ok)
			}
		})
	}
}

func FuzzProcessCgroup(f *testing.F) {
	addFiles(f, "proc/self/cgroup", "proc/4321/cgroup", "proc/777/cgroup")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, controller := range []string{"memory", "pids", ""} {
			rel, ok := parseProcessCgroup(b, controller)
			if ok != strings.HasPrefix(rel, "/") {
				t.Fatalf("%q: %q, %t", controller, rel, ok)
			}
		}
	})
}

func TestFindPods(t *testing.T) {
	for name, want := range map[string]string{
		"6.18-hybrid-cgroupfs": "/kubepods cgroupfs", "6.1-v2-systemd": "/kubepods.slice systemd", "5.10-v1-cgroupfs": "/kubepods cgroupfs",
	} {
		rel, driver, err := testTree(t, name).FindPods()
		if got := rel + " " + string(driver); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	for name, c := range map[string]struct {
		dirs []string // a * has a process
		want string
	}{
		"kind":                        {[]string{"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"}, "/kubelet.slice/kubelet-kubepods.slice systemd"},
		"a root of its own":           {[]string{"system.slice", "mine/kubepods/burstable"}, "/mine/kubepods cgroupfs"},
		"a prefix":                    {[]string{"edge-kubepods"}, "/edge-kubepods cgroupfs"},
		"three deep":                  {[]string{"a/b/kubepods.slice"}, "/a/b/kubepods.slice systemd"},
		"too deep":                    {[]string{"a/b/c/kubepods"}, ""},
		"none":                        {[]string{"system.slice", "kubepods-burstable.slice", "kubepodsx"}, ""},
		"two, the nearer":             {[]string{"a/kubepods", "z-kubepods"}, "/z-kubepods cgroupfs"},
		"two, by name":                {[]string{"kubepods.slice", "kubepods"}, "/kubepods cgroupfs"},
		"two, the one that is in use": {[]string{"kubepods", "kubepods.slice/x*"}, "/kubepods.slice systemd"},
		"the one with pods, not theirs": {
			[]string{"kubepods/burstable/podx/kubepods*"}, "/kubepods cgroupfs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{"memory/cgroup.procs": "1\n", "memory/memory.stat": ""}
			for _, dir := range c.dirs {
				dir, procs := strings.TrimSuffix(dir, "*"), ""
				if strings.HasSuffix(c.dirs[len(c.dirs)-1], "*") && dir+"*" == c.dirs[len(c.dirs)-1] {
					procs = "42\n"
				}
				for at := dir; at != "."; at = path.Dir(at) {
					name := "memory/" + at + "/cgroup.procs"
					files[name] += procs
					procs = ""
				}
			}
			write(t, root, files)
			l, err := Detect(Root(root), "/proc")
			if err != nil {
				t.Fatal(err)
			}
			rel, driver, err := l.FindPods()
			if c.want == "" {
				if !errors.Is(err, ErrGone) {
					t.Errorf("got %q, %v; want ErrGone", rel, err)
				}
				return
			}
			if got := rel + " " + string(driver); got != c.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestPodsCgroupOf(t *testing.T) {
	for pod, want := range map[string]string{
		"/kubepods/burstable/podx":            "/kubepods",
		"/mine/kubepods/podx":                 "/mine/kubepods",
		"/kubepods/burstable/podx/kubepods":   "/kubepods",
		"/kubepods.slice/kubepods-podx.slice": "/kubepods.slice",
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-podx.slice": "/kubelet.slice/kubelet-kubepods.slice",
		"/machine.slice/podx": "", "/": "", "": "",
	} {
		if got := PodsCgroupOf(pod); got != want {
			t.Errorf("%s: got %q, want %q", pod, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	for spec, want := range map[string]string{
		"/kubepods/burstable/podx/abc": "/kubepods/burstable/podx/abc",
		"kubepods/podx/abc":            "",
		"/k8s.io//abc/":                "/k8s.io/abc",

		"kubepods-burstable-podx_y.slice:cri-containerd:abc": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx_y.slice/cri-containerd-abc.scope",
		"kubelet-kubepods-podx.slice:crio:abc":               "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podx.slice/crio-abc.scope",
		":crio:abc":                                          "/system.slice/crio-abc.scope",
		"system.slice::abc":                                  "/system.slice/abc.scope",
		"a.slice:p:b.slice":                                  "/a.slice/b.slice",
		"-.slice:p:n":                                        "/p-n.scope",
		"/with:two:colons":                                   "/with:two:colons",
		"a.slice:p:":                                         "",
		"a--b.slice:p:n":                                     "",
		"-a.slice:p:n":                                       "",
		"a-.slice:p:n":                                       "",
		".slice:p:n":                                         "",
		"noslice:p:n":                                        "",
		"a/b.slice:p:n":                                      "",
		"a.slice:p:../../etc":                                "",
		"":                                                   "",
		"/":                                                  "",
		"..":                                                 "",
		"/kubepods/../../etc/passwd":                         "",
		"/a\x00b":                                            "",
	} {
		if got := (Layout{}).Resolve(spec); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", spec, got, want)
		}
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"/a/b", "a-b-c.slice:p:n", "::", ":::", "a.slice:/:..", "-.slice:x:y", "..:..:.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		rel := (Layout{}).Resolve(spec)
		if rel == "" {
			return
		}
		if clean, err := cleanPath(rel); err != nil || clean != rel {
			t.Fatalf("Resolve(%q) = %q, which is no clean path: %v", spec, rel, err)
		}
	})
}

func TestProcessStart(t *testing.T) {
	before := BootTime()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := BootTime()
	start, err := ProcessStart("/proc", cmd.Process.Pid)
	if err != nil || start < before-10*time.Millisecond || start > after {
		t.Errorf("a process started between %v and %v is said to be started at %v, %v", before, after, start, err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := ProcessStart("/proc", cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestParseProcessStart(t *testing.T) {
	const rest = " S 1 2 2 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
	for text, want := range map[string]time.Duration{
		"12 (cat)" + rest + "4711 9 9\n":            47110 * time.Millisecond,
		"12 (a) S 1) (b)" + rest + "100 9 9\n":      time.Second,
		"12 (cat)" + rest + "0":                     0,
		"12 (cat)" + rest:                           -1,
		"12 (cat)" + rest + "-1 9":                  -1,
		"12 (cat)" + rest + "9223372036854775807 9": -1,
		"12 (cat": -1,
		"":        -1,
	} {
		got, ok := parseProcessStart([]byte(text))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func FuzzProcessStart(f *testing.F) {
	f.Add([]byte("12 (cat) S 1 2 2 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9"))
	f.Add([]byte(")))"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if start, ok := parseProcessStart(b); ok && start < 0 {
			t.Fatalf("start %v", start)
		}
	})
}

// The number of a namespace says whether it is the node's own, or one of a container.
func TestOwnPIDs(t *testing.T) {
	for _, c := range []struct {
		pid, cgroup     string
		own, namespaced bool
	}{
		{"pid:[4026531836]", "cgroup:[4026531835]", false, false},
		{"pid:[4026531836]", "cgroup:[4026532000]", false, true}, // a container with the node's processes
		{"pid:[4026532001]", "cgroup:[4026532000]", true, true},
		{"", "", false, false}, // a captured procfs
	} {
		proc := t.TempDir()
		write(t, proc, map[string]string{"self/ns/mnt": ""})
		for kind, ns := range map[string]string{"pid": c.pid, "cgroup": c.cgroup} {
			if ns == "" {
				continue
			}
			if err := os.Symlink(ns, filepath.Join(proc, "self/ns", kind)); err != nil {
				t.Fatal(err)
			}
		}
		if own, namespaced := OwnPIDs(Proc(proc)), Namespaced(Proc(proc)); own != c.own || namespaced != c.namespaced {
			t.Errorf("%+v: %v, %v", c, own, namespaced)
		}
	}
}
