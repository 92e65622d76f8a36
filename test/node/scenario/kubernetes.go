package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/lab"
)

// controlPlane are the services of a node with a kubelet, in the order in which they start.
var controlPlane = []string{"etcd", "kube-apiserver", "kubelet"}

// startKubernetes starts the control plane and waits until its node is ready. The kubelet has its default
// thresholds.
func (n *Node) startKubernetes() {
	const programs = payload + "/kubernetes/"
	setup := cluster.Setup{
		Dir: "/var/lib/kubernetes", KubeletRoot: "/var/lib/kubelet",
		Programs: lab.Kubernetes{Etcd: programs + "etcd", APIServer: programs + "kube-apiserver", Kubelet: programs + "kubelet", Kubectl: programs + "kubectl"},
		EtcdPort: 2379, ServerPort: 6443, KubeletPort: 10250,
		KubeletConfig: map[string]any{"containerRuntimeEndpoint": endpoint, "cgroupDriver": "systemd"},
	}
	var err error
	if n.api, err = setup.Write(); err != nil {
		n.Fatalf("%v", err)
	}
	commands := [][]string{setup.Etcd(), setup.APIServer(), setup.Kubelet()}
	serves := []func(context.Context) (bool, error){n.api.EtcdServes, n.api.Serves, n.api.KubeletServes}
	for i, unit := range controlPlane {
		n.Write("/etc/systemd/system/"+unit+".service", "[Service]\nOOMScoreAdjust=-999\nRestart=always\nExecStart="+strings.Join(commands[i], " ")+"\n")
		n.Shell("systemctl daemon-reload && systemctl start " + unit)
		n.serves(unit, serves[i])
	}
}

// serves waits until a service is ready.
func (n *Node) serves(unit string, ready func(context.Context) (bool, error)) {
	err := fmt.Errorf("not asked")
	if late := poll(unit+" to serve", 3*time.Minute, func() (ok bool) { ok, err = ready(n.context()); return ok }); late != nil {
		n.Fatalf("%v: %v", late, err)
	}
}

// configureKubelet restarts the kubelet with these fields in its configuration.
func (n *Node) configureKubelet(fields map[string]any) {
	if err := n.api.ConfigureKubelet(fields); err != nil {
		n.Fatalf("%v", err)
	}
	n.Shell("systemctl restart kubelet")
	n.serves("kubelet", n.api.KubeletServes)
}

// podOf returns a pod for the API. It is not restarted after it ends.
func podOf(spec lab.PodSpec) cluster.Pod {
	pod := cluster.Pod{Metadata: cluster.Metadata{Name: spec.Name, Namespace: spec.Namespace}, Spec: cluster.PodSpec{RestartPolicy: "Never"}}
	for _, c := range spec.Containers {
		own := cluster.Container{Name: c.Name, Args: c.Args, Resources: cluster.Resources{Requests: map[string]string{}, Limits: map[string]string{}}}
		if request := max(c.MemoryRequest, spec.MemoryRequest); request > 0 {
			own.Resources.Requests["memory"] = fmt.Sprint(request)
		}
		if limit := max(c.MemoryLimit, spec.MemoryLimit); limit > 0 {
			own.Resources.Limits["memory"] = fmt.Sprint(limit)
			if len(own.Resources.Requests) == 0 {
				own.Resources.Limits["cpu"] = "100m" // Guaranteed
			}
		}
		for name, path := range c.EmptyDirs {
			pod.Spec.Volumes = append(pod.Spec.Volumes, cluster.Volume{Name: name, EmptyDir: &struct{}{}})
			own.VolumeMounts = append(own.VolumeMounts, cluster.VolumeMount{Name: name, MountPath: path})
		}
		for i, m := range c.Mounts {
			name := fmt.Sprintf("host-%d", i)
			pod.Spec.Volumes = append(pod.Spec.Volumes, cluster.Volume{Name: name, HostPath: &cluster.HostPath{Path: m.Host}})
			own.VolumeMounts = append(own.VolumeMounts, cluster.VolumeMount{Name: name, MountPath: m.Container})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, own)
	}
	return pod
}

// create creates a pod through the API and waits until it runs.
func (n *Node) create(pod cluster.Pod) (*Pod, error) {
	for begin := time.Now(); ; {
		if err := n.api.CreatePod(n.context(), pod); err != nil {
			return nil, err
		}
		p, err := n.running(pod.Metadata.Name)
		if !errors.Is(err, errRejected) || time.Since(begin) > patience {
			return p, err
		}
		n.deletePod(&Pod{RunningPod: &lab.RunningPod{PodSpec: lab.PodSpec{Namespace: "default", Name: pod.Metadata.Name}}})
	}
}

// errRejected means that the kubelet does not start the pod, for example because of pressure.
var errRejected = errors.New("rejected")

// running waits until a pod of the API runs.
func (n *Node) running(name string) (*Pod, error) {
	var found cluster.Pod
	err := poll(name+" that runs", patience, func() bool {
		found = n.apiPods()[name]
		return found.Runs() || found.Status.Phase == "Failed"
	})
	if err == nil && !found.Runs() {
		err = errRejected
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w: %+v", name, err, found.Status)
	}
	p := &Pod{RunningPod: &lab.RunningPod{PodSpec: lab.PodSpec{Namespace: found.Metadata.Namespace, Name: name, UID: found.Metadata.UID}}}
	for _, c := range found.Status.ContainerStatuses {
		id := strings.TrimPrefix(c.ContainerID, "containerd://")
		pid, err := n.machine.PID(n.context(), id)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			return nil, err
		}
		cgroup := strings.TrimPrefix(strings.TrimSpace(string(text)), "0::") // v2
		p.Containers = append(p.Containers, lab.RunningContainer{ID: id, Cgroup: cgroup})
		p.pids = append(p.pids, pid)
	}
	return p, nil
}

// apiInterval is the shortest time between two lists of pods, each of which takes much of an emulated CPU.
const apiInterval = time.Second

// apiPods returns the pods in the API by name. On a node without memory, the API server may need a retry.
func (n *Node) apiPods() (pods map[string]cluster.Pod) {
	var err error
	late := poll("answer of the API server", patience, func() bool {
		time.Sleep(time.Until(n.listed.Add(apiInterval)))
		pods, err = n.api.Pods(n.context())
		n.listed = time.Now()
		return err == nil
	})
	if late != nil {
		n.Fatalf("%v: %v", late, err)
	}
	return pods
}

// deletePod deletes a pod in the API and waits until the kubelet has removed it.
func (n *Node) deletePod(p *Pod) {
	if err := n.api.DeletePod(n.context(), p.Namespace, p.Name); err != nil {
		n.Fatalf("%v", err)
	}
	n.Until(p.ID()+" to be removed", func() bool { _, there := n.apiPods()[p.Name]; return !there })
}

// checkCluster checks that the kubelet restarted no pod but those that criguard stopped, that it evicted none,
// and that the node is ready and has no pressure.
func (n *Node) checkCluster() {
	for name, p := range n.apiPods() {
		stopped := slices.ContainsFunc(n.pods, func(own *Pod) bool { return own.Name == name && own.stopped })
		if p.Status.Reason != "" || !stopped && (!p.Runs() || p.Restarts() > 0) {
			n.Wrongf("the kubelet reports of %s: %+v", name, p.Status)
		}
	}
	status, err := n.api.GetNode(n.context())
	if err != nil {
		n.Fatalf("%v", err)
	}
	for condition, want := range map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"} {
		if got := status.Condition(condition); got.Status != want {
			n.Errorf("condition %s is %q, want %s: %s", condition, got.Status, want, got.Message)
		}
	}
}

// kubectl runs kubectl as the cluster's administrator.
func (n *Node) kubectl(args ...string) string {
	out, err := n.api.Kubectl(n.context(), args...)
	if err != nil {
		n.Fatalf("%v", err)
	}
	return out
}

// file writes a file for kubectl and returns its path.
func (n *Node) file(name, text string) string {
	path := filepath.Join("/run", name)
	n.Write(path, text)
	return path
}

// blocks returns the blocks of code in a language on a page of the payload disk.
func (n *Node) blocks(page, language string) (all []string) {
	text, err := os.ReadFile(filepath.Join(payload, page))
	if err != nil {
		n.Fatalf("%v", err)
	}
	for _, after := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(after, "```")
		all = append(all, block)
	}
	return all
}
