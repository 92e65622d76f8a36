package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/harness"
)

// object is an object of a manifest.
type object = map[string]any

// In a pod, as docs/in-a-pod.md creates it, criguard sees the node, stops a leaking pod and no other, and
// continues after a restart by the kubelet.
func TestPod(t *testing.T) {
	n := newPodNode(t)
	static, daemon := n.manifests()
	for _, kind := range []string{"static", "daemonset"} {
		t.Run(kind, func(t *testing.T) {
			n := n.on(t)
			leaky := "leaky-" + kind
			n.create(leak(leaky, "Always"), cluster.Workload("innocent-"+kind, cluster.Resources{}, "hog", "-mib", "100"))
			name := "criguard"
			if kind == "static" {
				n.check(os.WriteFile(n.cluster.StaticPodPath("criguard"), n.encode(static), 0o600))
				name += "-" + cluster.Node
			} else {
				n.apply(daemon[0])
				n.apply(daemon[1], "--dry-run=server") // it is valid; no controller makes its pods
				n.apply(n.podOf(daemon[1], name))
			}
			n.until("criguard to run", func() bool { return n.pod(name).Runs() })
			status := n.seesNode(name)
			if status.Budget.Hard.Left != status.Budget.Hard.Burst {
				t.Errorf("budget before: %+v", status.Budget.Hard)
			}
			pod := n.leakUntilStopped(leaky)

			n.runsCommands(name)
			stops := n.stops()
			n.check(unix.Kill(status.PID, unix.SIGKILL)) // visible: it shares the node's PID namespace
			n.until("the kubelet to restart criguard", func() bool { p := n.pod(name); return p.Runs() && p.Restarts() == 1 })
			again := n.seesNode(name)
			if again.PID == status.PID || again.Budget.Hard.Left >= again.Budget.Hard.Burst {
				t.Errorf("after the restart: PID %d, budget %+v", again.PID, again.Budget.Hard)
			}
			if got := n.stops(); len(got) != len(stops) || got[len(got)-1].Pod != "default/"+leaky {
				t.Errorf("after the restart: stops %+v, want %+v", got, stops)
			}
			n.again(pod)
			n.leakUntilStopped(leaky)

			if kind == "static" {
				n.check(os.Remove(n.cluster.StaticPodPath("criguard")))
			} else {
				n.check(n.cluster.DeletePod(n.Context(), "kube-system", name))
			}
			n.until("criguard to be removed", func() bool { _, ok := n.pods()[name]; return !ok })
			n.check(n.cluster.DeletePod(n.Context(), "default", leaky))
			n.untouched(leaky)
			n.check(os.Remove(filepath.Join(n.guard.Dir, "budget.json")))
			n.check(os.Remove(filepath.Join(n.guard.Dir, "history.jsonl")))
		})
	}
}

// With a mount left out, the status names it. Without the node's cgroups criguard does not start.
func TestPodWithoutMount(t *testing.T) {
	n := newPodNode(t)
	_, daemon := n.manifests()
	n.create(cluster.Workload("innocent", cluster.Resources{}, "pause"))
	n.apply(daemon[0])
	for volume, want := range map[string]string{
		"runtime": "no directory of a runtime's socket exists",
		"kubelet": n.lab.KubeletRoot() + "/pods",
		"logs":    n.lab.PodLogDir(),
		"images":  n.lab.ContainerdRoot(),
		"hostPID": "set hostPID: true",
		"cgroup":  "the cgroup tree is read-only",
	} {
		t.Run(volume, func(t *testing.T) {
			n := n.on(t)
			name := "without-" + strings.ToLower(volume)
			pod := n.podOf(daemon[1], name)
			spec := pod["spec"].(object)
			delete(spec, volume)
			container := spec["containers"].([]any)[0].(object)
			container["volumeMounts"] = slices.DeleteFunc(container["volumeMounts"].([]any), func(m any) bool { return m.(object)["name"] == volume })
			n.apply(pod)
			defer func() {
				n.check(n.cluster.DeletePod(n.Context(), "kube-system", name))
				n.until("criguard to be removed", func() bool { _, ok := n.pods()[name]; return !ok })
			}()
			if volume == "cgroup" {
				n.until("criguard to end", func() bool {
					s := n.pod(name).Status.ContainerStatuses
					return len(s) == 1 && (s[0].State.Terminated != nil || s[0].LastState.Terminated != nil)
				})
				if out := n.logs("-n", "kube-system", name); !strings.Contains(out, want) {
					t.Errorf("logs %q, want %q", out, want)
				}
				return
			}
			n.until("criguard to run", func() bool { return n.pod(name).Runs() })
			var warnings []string
			defer func() {
				t.Logf("warnings: %q", warnings)
				t.Logf("logs: %s", n.logs("-n", "kube-system", name))
			}()
			n.until("a warning: "+want, func() bool {
				status, err := n.guard.Client().Status(n.Context())
				warnings = status.Warnings
				return err == nil && strings.Contains(strings.Join(warnings, "\n"), want)
			})
			if len(warnings) != 1 {
				t.Errorf("warnings %q, want one", warnings)
			}
			if out := n.logs("-n", "kube-system", name); !strings.Contains(out, want) {
				t.Errorf("logs %q, want %q", out, want)
			}
		})
	}
	n.untouched()
}

// newPodNode returns a node that has the image, and criguard's configuration for a pod.
func newPodNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	// mountPropagation needs a shared mount, as systemd makes all mounts.
	dir := n.lab.Dir()
	n.check(unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""))
	n.check(unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""))

	dist := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "-C", "../..", "image", "DIST="+dist, "VERSION=v1.2.3", "EPOCH=0", "ARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, out)
	}
	n.check(n.lab.ImportArchive(t.Context(), filepath.Join(dist, "criguard-v1.2.3-"+runtime.GOARCH+".tar")))
	n.configure(policy.MemoryAvailable, n.available(policy.MemoryAvailable)-headroom, "")
	text, err := os.ReadFile(n.guard.Config())
	n.check(err)
	n.guard.Configure(strings.NewReplacer(n.lab.Endpoint(), "unix:///run/containerd/containerd.sock", n.guard.Dir, "/run/criguard").Replace(string(text)))
	return n
}

// podOf returns the pod that a DaemonSet has on this node.
func (n *node) podOf(daemon object, name string) (pod object) {
	n.Helper()
	template := daemon["spec"].(object)["template"].(object)
	n.check(json.Unmarshal(n.encode(template), &pod)) // a copy
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	metadata := pod["metadata"].(object)
	metadata["name"], metadata["namespace"] = name, "kube-system"
	pod["spec"].(object)["nodeName"] = cluster.Node
	return pod
}

// apply creates an object.
func (n *node) apply(o object, args ...string) {
	n.Helper()
	file := filepath.Join(n.TempDir(), "object.json")
	n.check(os.WriteFile(file, n.encode(o), 0o600))
	_, err := n.cluster.Kubectl(n.Context(), append([]string{"create", "--validate=strict", "-f", file}, args...)...)
	n.check(err)
}

func (n *node) encode(o object) []byte {
	n.Helper()
	text, err := json.Marshal(o)
	n.check(err)
	return text
}

var kubectlLine = regexp.MustCompile(`(?m)^kubectl (.*)$`)

// runsCommands runs every kubectl command of the page with a pod's name.
func (n *node) runsCommands(name string) {
	n.Helper()
	page := n.page()
	lines := kubectlLine.FindAllStringSubmatch(page, -1)
	if len(lines) < 6 {
		n.Errorf("%d commands", len(lines))
	}
	for _, line := range lines {
		out, err := n.cluster.Kubectl(n.Context(), strings.Fields(strings.ReplaceAll(line[1], "criguard-x7k2p", name))...)
		pressure := strings.HasSuffix(line[1], " status") && strings.Contains(fmt.Sprint(err), "exit code 1")
		if err != nil && !pressure || err == nil && out == "" && !strings.Contains(line[1], "--quiet") {
			n.Errorf("kubectl %s: %v: %q", line[1], err, out)
		}
	}
}

// page returns docs/in-a-pod.md.
func (n *node) page() string {
	n.Helper()
	text, err := os.ReadFile("../../docs/in-a-pod.md")
	n.check(err)
	return string(text)
}

var manifest = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// manifests returns the manifests of the page, on this node's paths: the static pod, and the ConfigMap and
// the DaemonSet.
func (n *node) manifests() (static object, daemon []object) {
	n.Helper()
	blocks := manifest.FindAllStringSubmatch(n.page(), -1)
	if len(blocks) != 2 {
		n.Fatalf("%d manifests", len(blocks))
	}
	config, err := os.ReadFile(n.guard.Config())
	n.check(err)
	for i, b := range blocks {
		for in := yaml.NewDecoder(strings.NewReader(b[1])); ; {
			var o object
			if err := in.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				n.Fatal(err)
			}
			switch o["kind"] {
			case "Pod":
				n.adapt(o["spec"].(object))
			case "DaemonSet":
				n.adapt(o["spec"].(object)["template"].(object)["spec"].(object))
			case "ConfigMap":
				o["data"] = object{"config.toml": string(config)}
			}
			if i == 0 {
				static = o
			} else {
				daemon = append(daemon, o)
			}
		}
	}
	return static, daemon
}

// adapt puts this node's paths into a pod: on the node, and in the pod where the runtime reports them. It
// removes a capability that this machine has not got.
func (n *node) adapt(spec object) {
	n.Helper()
	own := map[string]string{
		"/etc/criguard": n.guard.Dir, "/run/criguard": n.guard.Dir, "/var/lib/criguard": n.guard.Dir, "/run/containerd": n.lab.Dir(),
		"/var/lib/kubelet": n.lab.KubeletRoot(), "/var/log/pods": n.lab.PodLogDir(), "/var/lib/containerd": n.lab.ContainerdRoot(),
	}
	for _, v := range spec["volumes"].([]any) {
		if host, ok := v.(object)["hostPath"].(object); ok && host["path"] != "/sys/fs/cgroup" {
			host["path"] = own[host["path"].(string)]
		}
	}
	container := spec["containers"].([]any)[0].(object)
	for _, m := range container["volumeMounts"].([]any) {
		switch at := m.(object)["mountPath"].(string); at {
		case "/var/lib/kubelet", "/var/log/pods", "/var/lib/containerd":
			m.(object)["mountPath"] = own[at]
		}
	}
	caps := container["securityContext"].(object)["capabilities"].(object)
	if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil || has == 0 {
		n.Logf("without CAP_SYS_RESOURCE, which this machine has not got: %v", err)
		caps["add"] = slices.DeleteFunc(caps["add"].([]any), func(c any) bool { return c == "SYS_RESOURCE" })
	}
}

// seesNode waits until criguard in a pod has listed the pods and reads every signal that this node has.
func (n *node) seesNode(name string) (status api.Status) {
	n.Helper()
	n.until("criguard to see the node", func() bool {
		out, err := n.cluster.Kubectl(n.Context(), "exec", "-n", "kube-system", name, "--", "/criguard", "status", "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &status) == nil && status.Runtime.Up && status.Pods == len(n.pods()) &&
			!slices.ContainsFunc(status.Signals, func(s api.SignalStatus) bool {
				return s.Status != "ok" && slices.Contains([]policy.Signal{
					policy.MemoryAvailable, policy.MeminfoAvailable, policy.PIDAvailable, policy.NodeFSAvailable, policy.ImageFSAvailable,
				}, s.Signal)
			})
	})
	if len(status.Warnings) > 0 || len(status.Alarms) > 0 {
		n.Errorf("warnings %q, alarms %q", status.Warnings, status.Alarms)
	}
	if out := n.logs("-n", "kube-system", name); strings.Contains(out, "level=WARN") {
		n.Errorf("logs:\n%s", out)
	}
	for _, p := range harness.Ask[api.Ranking](n.guard, "rank").Pods {
		if p.Pod == "kube-system/"+name && p.Excluded != "criguard's own pod" {
			n.Errorf("its own pod is excluded because of %q", p.Excluded)
		}
	}
	return status
}
