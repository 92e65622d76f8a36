package lab

import (
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// QoS is a pod's quality of service class, spelt as in the Kubernetes API.
type QoS string

// The three classes, see https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/.
const (
	Guaranteed QoS = "Guaranteed"
	Burstable  QoS = "Burstable"
	BestEffort QoS = "BestEffort"
)

// qosOf derives the class from the containers' memory. It ignores the CPU, which also counts in the
// API, because nearly all pods here leave it unset.
func qosOf(containers []ContainerSpec) QoS {
	some, all := false, true
	for _, c := range containers {
		some = some || c.MemoryRequest > 0 || c.MemoryLimit > 0
		all = all && c.MemoryLimit > 0 && (c.MemoryRequest == 0 || c.MemoryRequest == c.MemoryLimit)
	}
	switch {
	case !some:
		return BestEffort
	case all:
		return Guaranteed
	default:
		return Burstable
	}
}

// podCgroup returns the path of a pod's cgroup with the kubelet's cgroupfs driver, below the cgroup
// of all pods.
func podCgroup(qos QoS, uid string) string {
	if qos == Guaranteed {
		return "pod" + uid
	}
	return filepath.Join(strings.ToLower(string(qos)), "pod"+uid)
}

// podSlice returns the path of a pod's slice with the kubelet's systemd driver, below the slice of
// all pods (systemd.slice(5)).
func podSlice(qos QoS, uid string) string {
	class := "kubepods"
	var parent string
	if qos != Guaranteed {
		class += "-" + strings.ToLower(string(qos))
		parent = class + ".slice"
	}
	return filepath.Join(parent, class+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
}

// OOMScoreAdj returns the kubelet's oom_score_adj for a container on a node with capacity bytes of
// memory.
func OOMScoreAdj(qos QoS, critical bool, request, capacity int64) int64 {
	const guaranteed, bestEffort = -997, 1000
	switch {
	case critical || qos == Guaranteed:
		return guaranteed
	case qos == BestEffort:
		return bestEffort
	}
	adj := 1000 - 1000*request/capacity
	return min(max(adj, 1000+guaranteed), bestEffort-1)
}

// memoryCapacity returns the machine's memory in bytes.
func memoryCapacity() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read memory capacity: %w", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// podLabels adds the kubelet's own labels to the pod's.
func podLabels(spec PodSpec) map[string]string {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if !spec.Bare {
		labels["io.kubernetes.pod.name"] = spec.Name
		labels["io.kubernetes.pod.namespace"] = spec.Namespace
		labels["io.kubernetes.pod.uid"] = spec.UID
	}
	return labels
}

// podAnnotations merges the kubelet's own annotations with the pod's, which take precedence.
func podAnnotations(spec PodSpec, now time.Time) map[string]string {
	annotations := map[string]string{}
	if !spec.Bare {
		annotations["kubernetes.io/config.source"] = "api"
		annotations["kubernetes.io/config.seen"] = now.Format(time.RFC3339Nano)
	}
	maps.Copy(annotations, spec.Annotations)
	return annotations
}

// containerLabels returns the kubelet's labels for a container.
func containerLabels(spec PodSpec, c ContainerSpec) map[string]string {
	if spec.Bare {
		return nil
	}
	labels := podLabels(PodSpec{Namespace: spec.Namespace, Name: spec.Name, UID: spec.UID})
	labels["io.kubernetes.container.name"] = c.Name
	return labels
}

// containerAnnotations returns the kubelet's annotations for a container.
func containerAnnotations(spec PodSpec, c ContainerSpec) map[string]string {
	if spec.Bare {
		return nil
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%+v", c)
	return map[string]string{
		"io.kubernetes.container.hash":                     strconv.FormatUint(uint64(hash.Sum32()), 16),
		"io.kubernetes.container.restartCount":             strconv.FormatUint(uint64(c.Attempt), 10),
		"io.kubernetes.container.terminationMessagePath":   terminationLog,
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.pod.terminationGracePeriod":         strconv.FormatInt(int64(spec.TerminationGrace/time.Second), 10),
	}
}

const terminationLog = "/dev/termination-log"

// kubeletMounts creates the pod's and the container's directories below the kubelet's root, and
// returns those that the kubelet mounts.
func (l *Lab) kubeletMounts(spec PodSpec, c ContainerSpec) ([]Mount, error) {
	pod := filepath.Join(l.KubeletRoot(), "pods", spec.UID)
	hosts := filepath.Join(pod, "etc-hosts")
	message := filepath.Join(pod, "containers", c.Name, strings.ToLower(rand.Text()[:8]))
	for _, file := range []string{hosts, message} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return nil, err
		}
	}
	mounts := []Mount{{Host: hosts, Container: "/etc/hosts"}, {Host: message, Container: terminationLog}}
	for name, path := range c.EmptyDirs {
		dir := filepath.Join(pod, "volumes/kubernetes.io~empty-dir", name)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		mounts = append(mounts, Mount{Host: dir, Container: path})
	}
	return mounts, nil
}

// newUID returns a random UID in the form of the Kubernetes API's.
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
