package critest

import (
	"encoding/json"
	"path"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The verbose info is encoded from the same types as in the runtimes: the OCI specification and the
// CRI's own messages, through encoding/json.

// statusInfo returns the info of Status.
func (s *Server) statusInfo() map[string]string {
	config := map[string]any{}
	if s.traits.statusSandboxImage {
		config["sandboxImage"] = pauseImage
	}
	if s.traits.crio {
		return map[string]string{"config": toJSON(config)}
	}
	config["containerdRootDir"] = "/var/lib/containerd"
	config["containerdEndpoint"] = s.socket()
	config["rootDir"] = "/var/lib/containerd/io.containerd.grpc.v1.cri"
	config["stateDir"] = "/run/containerd/io.containerd.grpc.v1.cri"
	return map[string]string{"config": toJSON(config), "golang": `"go1.19.8"`, "lastCNILoadStatus": "OK"}
}

// info returns the verbose info of a sandbox.
func (p *pod) info() map[string]string {
	if p.server.traits.crio { // no infra container: no pid, and the image only in annotations
		return map[string]string{"info": toJSON(map[string]any{"runtimeSpec": &specs.Spec{
			Version: "1.0.0",
			Annotations: map[string]string{
				"io.kubernetes.cri-o.CgroupParent":  p.spec.CgroupParent,
				"io.kubernetes.cri-o.Image":         pauseImage,
				"io.kubernetes.cri-o.ContainerType": "sandbox",
				"io.kubernetes.cri-o.SandboxID":     p.spec.ID,
				"io.kubernetes.cri-o.LogPath":       path.Join(logDirectory(p.spec), p.spec.ID+".log"),
				"io.kubernetes.cri-o.Annotations":   toJSON(p.spec.Annotations),
				"io.kubernetes.cri-o.Labels":        toJSON(p.spec.Labels),
			},
		}})}
	}
	adj := -998
	return map[string]string{"info": toJSON(map[string]any{
		"pid": p.pid, "processStatus": "running", "netNamespaceClosed": false, "image": pauseImage,
		"snapshotKey": p.spec.ID, "snapshotter": "overlayfs",
		"runtimeType": "io.containerd.runc.v2", "runtimeOptions": map[string]any{"systemd_cgroup": p.server.systemd},
		"config": &runtimeapi.PodSandboxConfig{
			Metadata: p.metadata(), LogDirectory: logDirectory(p.spec), Labels: p.spec.Labels, Annotations: p.spec.Annotations,
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent: p.spec.CgroupParent, Resources: p.resources(), Overhead: &runtimeapi.LinuxContainerResources{},
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces()},
			},
		},
		"runtimeSpec": &specs.Spec{
			Version: "1.0.2-dev", Process: &specs.Process{Args: []string{"/pause"}, Cwd: "/", OOMScoreAdj: &adj},
			Annotations: map[string]string{
				"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": p.spec.ID,
				"io.kubernetes.cri.sandbox-name": p.spec.Name, "io.kubernetes.cri.sandbox-namespace": p.spec.Namespace,
				"io.kubernetes.cri.sandbox-uid": p.spec.UID,
			},
			Linux: &specs.Linux{CgroupsPath: path.Join(p.spec.CgroupParent, p.spec.ID)},
		},
	})}
}

// resources returns the sums over a pod's containers, as newer kubelets set them.
func (p *pod) resources() *runtimeapi.LinuxContainerResources {
	sum := &runtimeapi.LinuxContainerResources{}
	for _, c := range p.containers {
		sum.MemoryLimitInBytes += c.spec.MemoryLimit
		sum.CpuShares += c.spec.CPUShares
	}
	return sum
}

func namespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER}
}

// info returns the verbose info of a container.
func (c *container) info() map[string]string {
	adj, shares := int(c.spec.OOMScoreAdj), uint64(c.spec.CPUShares)
	spec := &specs.Spec{
		Version: "1.0.2-dev", Process: &specs.Process{Args: []string{"/app"}, Cwd: "/", OOMScoreAdj: &adj},
		Linux: &specs.Linux{
			CgroupsPath: c.specPath(),
			Resources: &specs.LinuxResources{
				CPU: &specs.LinuxCPU{Shares: &shares}, Memory: &specs.LinuxMemory{},
			},
		},
	}
	if c.spec.MemoryLimit > 0 {
		spec.Linux.Resources.Memory.Limit = &c.spec.MemoryLimit
	}
	if c.pod.server.traits.crio {
		spec.Annotations = map[string]string{
			"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": c.pod.spec.ID,
			"io.kubernetes.cri-o.ImageName": c.spec.Image, "io.kubernetes.cri-o.ImageRef": c.image.id,
			"io.kubernetes.cri-o.LogPath": c.spec.LogPath,
		}
		return map[string]string{"info": toJSON(map[string]any{
			"sandboxID": c.pod.spec.ID, "pid": c.pid, "runtimeSpec": spec, "privileged": false,
		})}
	}
	spec.Annotations = map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": c.spec.Name,
		"io.kubernetes.cri.sandbox-id": c.pod.spec.ID, "io.kubernetes.cri.image-name": c.spec.Image,
	}
	return map[string]string{"info": toJSON(map[string]any{
		"sandboxID": c.pod.spec.ID, "pid": c.pid, "removing": false, "snapshotKey": c.spec.ID, "snapshotter": "overlayfs",
		"runtimeType": "io.containerd.runc.v2", "runtimeOptions": map[string]any{"systemd_cgroup": c.pod.server.systemd},
		"config": &runtimeapi.ContainerConfig{
			Metadata: c.metadata(), Image: &runtimeapi.ImageSpec{Image: c.image.id}, Labels: c.spec.Labels,
			Annotations: c.spec.Annotations, LogPath: path.Join(c.spec.Name, "0.log"),
			Linux: &runtimeapi.LinuxContainerConfig{Resources: c.resources()},
		},
		"runtimeSpec": spec,
	})}
}

func (c *container) resources() *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuShares: c.spec.CPUShares, MemoryLimitInBytes: c.spec.MemoryLimit,
		OomScoreAdj: c.spec.OOMScoreAdj,
	}
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // none of these types can fail
		return "{}"
	}
	return string(b)
}
