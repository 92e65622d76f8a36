package critest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
)

// PodSpec describes a pod to add. Every field is optional; the comments give the defaults.
type PodSpec struct {
	ID        string // 64 hex digits, chosen by the server
	Name      string // "pod-1", "pod-2", …
	Namespace string // "default"
	UID       string // a UUID, chosen by the server
	Attempt   uint32
	// QoS ("Guaranteed", "Burstable" or "BestEffort", the default) determines the cgroup parent as on a
	// kubelet, unless CgroupParent is set.
	QoS          string
	CgroupParent string
	Bare         bool // as created by crictl: without a kubelet's labels and annotations
	Static       bool // annotated as read from a file
	NotReady     bool // its containers have then exited, unless they set a State
	CreatedAt    time.Time
	Labels       map[string]string // added to the kubelet's
	Annotations  map[string]string
	Logs         string // directory of all pods' logs; "/var/log/pods"
	Containers   []ContainerSpec
}

// ContainerSpec describes a container of a pod. Every field is optional; the comments give the
// defaults.
type ContainerSpec struct {
	ID        string
	Name      string // "container-1", …
	Attempt   uint32
	State     cri.State // Unknown, the zero value, means Running
	Image     string    // as requested; "registry.local/app:1". Added if there is no such image
	CreatedAt time.Time // the pod's
	Finished  time.Time // if it has exited; CreatedAt

	Grace       time.Duration // the pod's termination grace period, stored as an annotation; 30 s
	Labels      map[string]string
	Annotations map[string]string
	Mounts      []cri.Mount
	LogPath     string

	MemoryLimit int64 // bytes; 0 = none
	CPUShares   int64 // 2
	OOMScoreAdj int64 // 1000

	Processes  int  // 1
	IgnoreTERM bool // only SIGKILL ends it
	// For so long after a signal that ends it, a process is in an uninterruptible sleep: the runtime notices the exit only then.
	Lingers time.Duration

	// The usage of the writable layer. Unsampled is containerd's answer in the first seconds: zeros
	// without a time.
	WritableBytes, WritableInodes uint64
	Unsampled                     bool
}

// ImageSpec describes an image to add.
type ImageSpec struct {
	ID       string   // a digest in the dialect's form, chosen by the server
	Tags     []string // may be empty
	Digests  []string // one for the first tag's repository, unless Imported
	Imported bool     // as from an archive: without a digest, except on CRI-O
	Size     int64    // 10 MiB
	Pinned   bool
	Artifact bool // an OCI artifact, which CRI-O lists among the images; its id is its digest
}

// Pod is a pod on the runtime.
type Pod struct {
	ID, Name, Namespace, UID string
	CgroupParent             string // path below the hierarchy
	Containers               []Container
}

// Container is a container on the runtime.
type Container struct {
	ID, Name string
	ImageID  string
	Cgroup   string // path below the hierarchy
	LogPath  string
}

const (
	pauseImage = "registry.local/pause:1"
	appImage   = "registry.local/app:1"
)

// fill completes a pod's specification; n numbers the pods of a server.
func (p PodSpec) fill(n int, systemd bool, now time.Time) PodSpec {
	setDefault(&p.ID, digest("pod", n))
	setDefault(&p.Name, fmt.Sprintf("pod-%d", n))
	setDefault(&p.Namespace, "default")
	id := digest("uid", n)
	setDefault(&p.UID, fmt.Sprintf("%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:32]))
	setDefault(&p.Logs, "/var/log/pods")
	setDefault(&p.QoS, "BestEffort")
	setDefault(&p.CgroupParent, podCgroup(p.QoS, p.UID, systemd))
	if p.CreatedAt.IsZero() {
		p.CreatedAt = now
	}
	labels, annotations := map[string]string{}, map[string]string{}
	if !p.Bare {
		labels["io.kubernetes.pod.name"] = p.Name
		labels["io.kubernetes.pod.namespace"] = p.Namespace
		labels["io.kubernetes.pod.uid"] = p.UID
		annotations["kubernetes.io/config.seen"] = p.CreatedAt.Format(time.RFC3339Nano)
		annotations["kubernetes.io/config.source"] = "api"
		if p.Static {
			annotations["kubernetes.io/config.source"] = "file"
		}
	}
	maps.Copy(labels, p.Labels)
	maps.Copy(annotations, p.Annotations)
	p.Labels, p.Annotations = labels, annotations
	return p
}

// fill completes a container's specification; n numbers the containers of a server, i those of the pod.
func (c ContainerSpec) fill(pod PodSpec, n, i int) ContainerSpec {
	setDefault(&c.ID, digest("container", n))
	setDefault(&c.Name, fmt.Sprintf("container-%d", i+1))
	setDefault(&c.Image, appImage)
	setDefault(&c.Grace, 30*time.Second)
	setDefault(&c.CPUShares, 2)
	setDefault(&c.OOMScoreAdj, 1000)
	setDefault(&c.Processes, 1)
	setDefault(&c.LogPath, path.Join(logDirectory(pod), c.Name, fmt.Sprintf("%d.log", c.Attempt)))
	if c.State == cri.Unknown {
		c.State = cri.Running
		if pod.NotReady {
			c.State = cri.Exited
		}
	}
	if c.CreatedAt.IsZero() {
		c.CreatedAt = pod.CreatedAt
	}
	if c.Finished.IsZero() {
		c.Finished = c.CreatedAt
	}
	labels, annotations := map[string]string{}, map[string]string{}
	if !pod.Bare {
		maps.Copy(labels, map[string]string{
			"io.kubernetes.container.name": c.Name, "io.kubernetes.pod.name": pod.Name,
			"io.kubernetes.pod.namespace": pod.Namespace, "io.kubernetes.pod.uid": pod.UID,
		})
		maps.Copy(annotations, map[string]string{
			"io.kubernetes.container.hash": digest(c.Image, 0)[:8], "io.kubernetes.container.restartCount": fmt.Sprint(c.Attempt),
			"io.kubernetes.pod.terminationGracePeriod": fmt.Sprint(int64(c.Grace / time.Second)),
		})
	}
	maps.Copy(labels, c.Labels)
	maps.Copy(annotations, c.Annotations)
	c.Labels, c.Annotations = labels, annotations
	return c
}

func logDirectory(p PodSpec) string {
	return path.Join(p.Logs, p.Namespace+"_"+p.Name+"_"+p.UID)
}

// podCgroup returns the cgroup parent that a kubelet would give the pod.
func podCgroup(qos, uid string, systemd bool) string {
	class := strings.ToLower(qos)
	if class == "guaranteed" {
		class = ""
	}
	if !systemd {
		return path.Join("/kubepods", class, "pod"+uid)
	}
	slice := "kubepods"
	if class != "" {
		slice += "-" + class
	}
	return expandSlice(slice + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice")
}

// expandSlice returns the path of a systemd slice: a-b.slice is inside a.slice.
func expandSlice(name string) string {
	p, prefix := "/", ""
	for part := range strings.SplitSeq(strings.TrimSuffix(name, ".slice"), "-") {
		prefix += part
		p = path.Join(p, prefix+".slice")
		prefix += "-"
	}
	return p
}

func digest(kind string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s-%d", kind, n))
	return hex.EncodeToString(sum[:])
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
