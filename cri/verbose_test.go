package cri

import (
	"fmt"
	"strings"
	"testing"
)

// Written by containerd 1.6 and 2 and by CRI-O, shortened.
const (
	ctdSandbox = `{"pid":4711,"processStatus":"running","netNamespaceClosed":false,"image":"registry.local/pause:1","snapshotter":"overlayfs",
"config":{"metadata":{"name":"web","uid":"u1","namespace":"default"},"log_directory":"/var/log/pods/default_web_u1",
"linux":{"cgroup_parent":"/kubepods/burstable/podu1","overhead":{"memory_limit_in_bytes":1048576},
"resources":{"cpu_shares":102,"cpu_quota":20000,"cpu_period":100000,"memory_limit_in_bytes":134217728},
"security_context":{"namespace_options":{"network":2,"pid":1}}}},
"runtimeSpec":{"ociVersion":"1.0.2-dev","process":{"oomScoreAdj":-998},"linux":{"cgroupsPath":"/kubepods/burstable/podu1/abc"}}}`

	crioSandbox = `{"runtimeSpec":{"ociVersion":"1.0.0","annotations":{"io.kubernetes.cri-o.CgroupParent":"kubepods-besteffort-podu1.slice",
"io.kubernetes.cri-o.Image":"registry.local/pause:1","io.kubernetes.cri-o.PodLinuxResources":"{\"cpu_shares\":2,\"memory_limit_in_bytes\":1000}"}}}`

	crioContainer = `{"sandboxID":"sb","pid":99,"runtimeSpec":{"process":{"oomScoreAdj":1000},"linux":{"cgroupsPath":"kubepods-podu1.slice:crio:abc",
"resources":{"memory":{"limit":67108864,"swap":67108864},"cpu":{"shares":2,"quota":-1,"period":100000},"unified":{"memory.min":"1024"}}}},"privileged":false}`
)

func known(v int64) Number { return Number{Value: v, Known: true} }

func TestSandboxInfo(t *testing.T) {
	in := decode[sandboxInfo](ctdSandbox)
	if in.image() != "registry.local/pause:1" || in.cgroupParent() != "/kubepods/burstable/podu1" {
		t.Errorf("containerd: %+v", in)
	}
	in = decode[sandboxInfo](crioSandbox)
	if in.image() != "registry.local/pause:1" || in.cgroupParent() != "kubepods-besteffort-podu1.slice" {
		t.Errorf("CRI-O: %+v", in)
	}
}

func TestContainerInfo(t *testing.T) {
	in := decode[containerInfo](crioContainer)
	if in.sandboxID() != "sb" || in.PID.pid() != 99 || in.Spec.Linux.CgroupsPath != "kubepods-podu1.slice:crio:abc" {
		t.Errorf("%+v", in)
	}
	r := in.Spec.resources()
	if r != (Resources{MemoryLimit: known(64 << 20), CPUShares: known(2), OOMScoreAdj: known(1000)}) {
		t.Errorf("resources %+v", r)
	}
	for key, text := range map[string]string{
		ctdSandboxID:  `{"runtimeSpec":{"annotations":{"io.kubernetes.cri.sandbox-id":"sb"}}}`,
		crioSandboxID: `{"runtimeSpec":{"annotations":{"io.kubernetes.cri-o.SandboxID":"sb"}}}`,
	} {
		if in := decode[containerInfo](text); in.sandboxID() != "sb" {
			t.Errorf("%s is not taken", key)
		}
	}
}

// TestLooseDecoding: a field of the wrong type costs that field only.
func TestLooseDecoding(t *testing.T) {
	for _, wrong := range []string{`"x"`, `"12"`, `1.5`, `1e3`, `99999999999999999999`, `-99999999999999999999`, `null`, `true`, `{}`, `[1]`} {
		text := fmt.Sprintf(`{"sandboxID":"sb","pid":%[1]s,"runtimeSpec":{"process":{"oomScoreAdj":%[1]s},"annotations":%[1]s,
"linux":{"cgroupsPath":"/a","resources":{"memory":{"limit":%[1]s},"cpu":{"shares":%[1]s,"quota":7}}}}}`, wrong)
		in := decode[containerInfo](text)
		r := in.Spec.resources()
		if in.PID.pid() != 0 || r.OOMScoreAdj.Known || r.MemoryLimit.Known || r.CPUShares.Known {
			t.Errorf("%s is taken for a number: %+v", wrong, r)
		}
		if in.sandboxID() != "sb" || in.Spec.Linux.CgroupsPath != "/a" || r.CPUQuota != known(7) {
			t.Errorf("%s costs other fields: %+v", wrong, in)
		}
	}
	for _, text := range []string{"", "null", "[]", `"x"`, "{", `{"pid":4711}garbage`, strings.Repeat("[", 100000), strings.Repeat(`{"config":`, 100000)} {
		if in := decode[sandboxInfo](text); in.cgroupParent() != "" {
			t.Errorf("%.20q gives %+v", text, in)
		}
	}
}

func TestRanges(t *testing.T) {
	for v, want := range map[int64]int{-1: 0, 0: 0, 1: 0, 2: 2, 4194304: 4194304, 4194305: 0, 1 << 40: 0} {
		if got := (looseInt{value: v, known: true}).pid(); got != want {
			t.Errorf("pid %d = %d, want %d", v, got, want)
		}
	}
	for v, want := range map[int64]Number{-1001: {}, -1000: known(-1000), 0: known(0), 1000: known(1000), 1001: {}} {
		if got := oomScoreAdj(v, true); got != want {
			t.Errorf("oomScoreAdj %d = %v, want %v", v, got, want)
		}
	}
	for in, want := range map[string]string{
		"/kubepods/podx": "/kubepods/podx", "a.slice:crio:x": "a.slice:crio:x", "": "", "/a/../b": "", "../a": "", "a.slice:..:x": "",
		"/a..b": "/a..b", "/a\x00b": "", "/a\nb": "", "/" + strings.Repeat("a", maxPath): "",
	} {
		if got := cgroupPath(in); got != want {
			t.Errorf("cgroupPath(%.20q) = %.20q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"/a/../b": "/b", "a": "", "": "", "/a\x00": "", "/" + strings.Repeat("a", maxPath): ""} {
		if got := absolute(in); got != want {
			t.Errorf("absolute(%.20q) = %.20q, want %q", in, got, want)
		}
	}
}

func FuzzSandboxInfo(f *testing.F) {
	for _, seed := range []string{ctdSandbox, crioSandbox, "", "null", `{"pid":"1"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in := decode[sandboxInfo](text)
		checkPlace(t, 0, in.cgroupParent())
		in.image()
	})
}

func FuzzContainerInfo(f *testing.F) {
	for _, seed := range []string{crioContainer, "", "null", `{"pid":1e9}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in := decode[containerInfo](text)
		checkResources(t, in.Spec.resources())
		checkPlace(t, in.PID.pid(), cgroupPath(in.Spec.Linux.CgroupsPath))
		in.sandboxID()
	})
}

func FuzzStatusConfig(f *testing.F) {
	f.Add(`{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"registry.local/pause:1"}`)
	f.Add(`{"sandboxImage":["x"]}`)
	f.Fuzz(func(_ *testing.T, text string) { decode[statusConfig](text) })
}

func checkPlace(t *testing.T, pid int, cgroup string) {
	t.Helper()
	if pid == 1 || pid < 0 || pid > 1<<22 {
		t.Errorf("pid %d", pid)
	}
	for part := range strings.SplitSeq(cgroup, "/") {
		if part == ".." {
			t.Errorf("cgroup %q", cgroup)
		}
	}
}

func checkResources(t *testing.T, r Resources) {
	t.Helper()
	for _, n := range []Number{r.MemoryLimit, r.CPUShares, r.CPUQuota} {
		if n.Known != (n.Value > 0) {
			t.Errorf("%+v", r)
		}
	}
	if n := r.OOMScoreAdj; n.Value < -1000 || n.Value > 1000 || !n.Known && n.Value != 0 {
		t.Errorf("%+v", r)
	}
}
