package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// kubernetesVersion is the release that InstallKubernetes builds. The modules of its staging area
// have the same version with major version 0.
const kubernetesVersion = "v1.37.2"

// Kubernetes holds the paths of the programs of a cluster.
type Kubernetes struct {
	Etcd, APIServer, Kubelet, Kubectl string
}

// InstallKubernetes builds the programs of a cluster below the cache directory, unless they are
// already there. They come from the Go module proxy, and etcd has the version that Kubernetes
// depends on. say is called for steps that take time; nil is silent.
func InstallKubernetes(ctx context.Context, say func(format string, args ...any)) (Kubernetes, error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	dir, err := Cached("kubernetes-"+kubernetesVersion, func(dir string) error { return buildKubernetes(ctx, dir, say) })
	if err != nil {
		return Kubernetes{}, fmt.Errorf("build Kubernetes %s: %w (hint: with a network, run \"make cluster\"; without one, copy %s from a machine that has it)",
			kubernetesVersion, err, dir)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return Kubernetes{Etcd: in("etcd"), APIServer: in("kube-apiserver"), Kubelet: in("kubelet"), Kubectl: in("kubectl")}, nil
}

// buildKubernetes builds the programs into dir. "go install" rejects the module of Kubernetes
// because of its replace directives, so they are built from a module of their own.
func buildKubernetes(ctx context.Context, dir string, say func(string, ...any)) error {
	say("building Kubernetes %s from the Go module proxy (a few minutes)", kubernetesVersion)
	const module, etcd = "k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"
	work := filepath.Join(dir, "module")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	command := func(args ...string) error {
		cmd := goCommand(ctx, os.Environ(), args...)
		cmd.Dir = work
		return run(cmd)
	}
	if err := command("mod", "init", "cluster"); err != nil {
		return err
	}
	staging, err := stagingModules(ctx, work, module+"@"+kubernetesVersion)
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-require=" + module + "@" + kubernetesVersion}
	for _, m := range staging {
		edit = append(edit, fmt.Sprintf("-replace=%s=%s@%s", m, m, strings.Replace(kubernetesVersion, "v1.", "v0.", 1)))
	}
	stamp := "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion
	for _, args := range [][]string{
		edit,
		{"build", "-mod=mod", "-trimpath", stamp, "-o", dir + "/", module + "/cmd/kube-apiserver", module + "/cmd/kubelet", module + "/cmd/kubectl"},
		{"build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "etcd"), etcd},
	} {
		if err := command(args...); err != nil {
			return err
		}
	}
	return os.RemoveAll(work)
}

// stagingModules returns the modules that the Kubernetes tree replaces with its own directories: its
// go.mod requires them as v0.0.0, which does not exist.
func stagingModules(ctx context.Context, work, module string) ([]string, error) {
	cmd := goCommand(ctx, os.Environ(), "mod", "download", "-json", module)
	cmd.Dir = work
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", module, outputError(err))
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return nil, fmt.Errorf("download %s: %w", module, err)
	}
	text, err := os.ReadFile(downloaded.GoMod)
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", module, err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(k8s\.io/\S+) v0\.0\.0$`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) == 0 {
		return nil, errors.New("find staging modules: " + downloaded.GoMod + " names none")
	}
	return names, nil
}

// LoopbackNetwork is a CNI configuration with which the runtime reports its network as ready. Pods
// share the host's network, so the plugin is never called.
const LoopbackNetwork = `{"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}`

// PrepareKubelet creates what a kubelet expects of the node: the lab's own cgroup in every
// hierarchy, for use as the kubelet's cgroup root, and a network of the runtime.
func (l *Lab) PrepareKubelet() error {
	for _, h := range l.cgroups.hierarchies {
		if err := os.MkdirAll(filepath.Join(h.dir, l.Cgroup()), 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	networks := filepath.Join(l.claim.Dir, "cni/net.d")
	err := os.MkdirAll(networks, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(networks, "10-loopback.conflist"), []byte(LoopbackNetwork), 0o600)
	}
	if err != nil {
		return fmt.Errorf("configure network: %w", err)
	}
	return nil
}
