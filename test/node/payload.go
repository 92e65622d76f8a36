package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/node/scenario"
)

// payload is the second disk: criguard from this tree, the agent, a second runtime and the pods'
// images.
type payload struct{ disk, version string }

// extras are parts of the payload that only some scenarios need, because they are large or take a while.
type extras struct{ debs, image, etcd, kubernetes bool }

// extrasOf returns what the trials need.
func extrasOf(trials []*trial) (e extras) {
	for _, t := range trials {
		e.debs = e.debs || t.scenario.Debs
		e.image = e.image || t.scenario.Image
		e.etcd = e.etcd || t.scenario.Etcd
		e.kubernetes = e.kubernetes || t.profile.Kubernetes
	}
	return e
}

// installed are the files that an administrator installs by hand, and their names on the disk.
var installed = map[string]string{
	"config.example.toml": "config.toml", "systemd/criguard.service": "criguard.service",
	"systemd/criguard.sysusers": "criguard.sysusers", "systemd/criguard.tmpfiles": "criguard.tmpfiles",
	"systemd/criguard-fleet.service": "criguard-fleet.service", "systemd/criguard-fleet.socket": "criguard-fleet.socket",
}

// buildPayload builds the disk and its content in dir.
func buildPayload(ctx context.Context, dir string, extra extras) (payload, error) {
	tree := filepath.Join(dir, "payload")
	for _, d := range []string{"criguard", "containerd2"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return payload{}, err
		}
	}
	version := "devel"
	if out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		version = string(out[:len(out)-1])
	}
	builds := [][]string{
		{"-tags", "grpcnotrace,nethttpomithttp2", "-ldflags", "-s -w -X main.version=" + version, "-o", filepath.Join(tree, "criguard/criguard"), "./cmd/criguard"},
		{"-ldflags", "-s -w", "-o", filepath.Join(tree, "guest"), "./test/node/guest"},
	}
	for _, args := range builds {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := run(cmd); err != nil {
			return payload{}, fmt.Errorf("build payload: %w (hint: run inside the criguard tree)", err)
		}
	}
	for from, to := range installed {
		if err := copyFile(from, filepath.Join(tree, "criguard", to), 0o644); err != nil {
			return payload{}, fmt.Errorf("build payload: %w (hint: run at the root of the criguard tree)", err)
		}
	}
	size := "512M"
	if extra.debs {
		if err := makePackages(ctx, dir, tree, version); err != nil {
			return payload{}, err
		}
	}
	if extra.image {
		if err := makeImage(ctx, dir, tree); err != nil {
			return payload{}, err
		}
	}
	if extra.etcd {
		etcd, err := lab.InstallEtcd(ctx, lab.Etcd36, say)
		if err != nil {
			return payload{}, err
		}
		if err := copyFile(etcd, filepath.Join(tree, scenario.EtcdProgram), 0o755); err != nil {
			return payload{}, err
		}
	}
	if extra.kubernetes {
		size = "1200M"
		if err := copyKubernetes(ctx, tree); err != nil {
			return payload{}, err
		}
	}
	if err := copyRuntime(ctx, filepath.Join(tree, "containerd2")); err != nil {
		return payload{}, err
	}
	if err := writeImages(ctx, tree); err != nil {
		return payload{}, fmt.Errorf("make images: %w", err)
	}
	disk := filepath.Join(dir, "payload.img")
	if err := makeExt4(ctx, disk, size, tree, "-m", "0"); err != nil {
		return payload{}, fmt.Errorf("make payload disk: %w", err)
	}
	return payload{disk: disk, version: version}, os.RemoveAll(tree)
}

// makePackages builds criguard's deb in this version and in a later one, in dir, and copies both.
func makePackages(ctx context.Context, dir, to, version string) error {
	for name, version := range map[string]string{scenario.FirstPackage: version, scenario.LaterPackage: scenario.LaterVersion} {
		dist := filepath.Join(dir, "dist-"+version)
		cmd := exec.CommandContext(ctx, "make", "packages", "ARCH=amd64", "DIST="+dist, "VERSION="+version,
			fmt.Sprintf("EPOCH=%d", time.Now().Unix()))
		if err := run(cmd); err != nil {
			return fmt.Errorf("make packages: %w", err)
		}
		debs, err := filepath.Glob(filepath.Join(dist, "*.deb"))
		if err != nil || len(debs) != 1 {
			return errors.Join(fmt.Errorf("find one deb in %s: found %d", dist, len(debs)), err)
		}
		if err := errors.Join(copyFile(debs[0], filepath.Join(to, name), 0o644), os.RemoveAll(dist)); err != nil {
			return err
		}
	}
	return nil
}

// makeImage builds criguard's image in dir, and copies it with the page whose manifests use it.
func makeImage(ctx context.Context, dir, to string) error {
	dist := filepath.Join(dir, "dist-image")
	cmd := exec.CommandContext(ctx, "make", "image", "ARCH=amd64", "DIST="+dist, "VERSION="+scenario.ImageVersion, "EPOCH=0")
	if err := run(cmd); err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	return errors.Join(
		copyFile(filepath.Join(dist, "criguard-"+scenario.ImageVersion+"-amd64.tar"), filepath.Join(to, scenario.GuardImage), 0o644),
		copyFile("docs/in-a-pod.md", filepath.Join(to, scenario.PodPage), 0o644),
		os.RemoveAll(dist),
	)
}

// copyKubernetes copies the programs of a cluster, and the page and the scripts that show it a stop.
func copyKubernetes(ctx context.Context, to string) error {
	programs, err := lab.InstallKubernetes(ctx, say)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(to, "kubernetes"), 0o755); err != nil {
		return err
	}
	for _, path := range []string{programs.Etcd, programs.APIServer, programs.Kubelet, programs.Kubectl} {
		if err := copyFile(path, filepath.Join(to, "kubernetes", filepath.Base(path)), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		copyFile("docs/kubelet.md", filepath.Join(to, scenario.KubeletPage), 0o644),
		os.CopyFS(filepath.Join(to, scenario.Examples), os.DirFS("docs/examples")),
	)
}

// copyRuntime copies containerd 2; the root filesystem has Debian's.
func copyRuntime(ctx context.Context, to string) error {
	programs, err := lab.Install(ctx, lab.Containerd2, say)
	if err != nil {
		return err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		if err := copyFile(filepath.Join(programs.Dirs[0], name), filepath.Join(to, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeImages writes the archives that scenarios import: the pods' own images and spare images to
// prune.
func writeImages(ctx context.Context, tree string) error {
	workload := filepath.Join(tree, "workload")
	if err := lab.BuildWorkload(ctx, workload); err != nil {
		return err
	}
	for name, specs := range scenario.Images() {
		f, err := os.Create(filepath.Join(tree, name))
		if err != nil {
			return err
		}
		_, err = lab.WriteArchive(f, workload, specs...)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}
