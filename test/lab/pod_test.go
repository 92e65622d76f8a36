package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestVersion(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		t.Logf("containerd %s, snapshotter %s", l.Version(), l.Snapshotter())
		if major, err := parseMajor("containerd x " + l.Version()); err != nil || major != l.programs.Major {
			t.Errorf("the runtime says %s, its program %s", l.Version(), l.programs.Reported)
		}
	})
}

func TestQoSClasses(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		capacity, err := memoryCapacity()
		if err != nil {
			t.Fatal(err)
		}
		floor, err := readInt(fmt.Sprintf("/proc/%d/oom_score_adj", l.ContainerdPID()))
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			name   string
			spec   PodSpec
			qos    QoS
			parent string
			adj    int64
		}{
			{"guaranteed", PodSpec{MemoryLimit: 64 << 20, MemoryRequest: 64 << 20}, Guaranteed, "/kubepods/pod", max(floor, -997)},
			{"burstable", PodSpec{MemoryRequest: capacity / 4}, Burstable, "/kubepods/burstable/pod", 750},
			{"besteffort", PodSpec{}, BestEffort, "/kubepods/besteffort/pod", 1000},
			{"critical", PodSpec{Critical: true}, BestEffort, "/kubepods/besteffort/pod", max(floor, -997)},
			{"named", PodSpec{QoS: Burstable}, Burstable, "/kubepods/burstable/pod", 999},
		} {
			t.Run(test.name, func(t *testing.T) {
				pod := runPod(t, l, test.spec)
				if pod.QoS != test.qos {
					t.Errorf("class %s", pod.QoS)
				}
				if want := l.Cgroup() + test.parent + pod.UID; pod.CgroupParent != want {
					t.Errorf("cgroup parent %s, want %s", pod.CgroupParent, want)
				}
				pid, err := l.PID(t.Context(), pod.Containers[0].ID)
				if err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
				if err != nil {
					t.Fatal(err)
				}
				cgroup := pod.CgroupParent + "/" + pod.Containers[0].ID
				for _, hierarchy := range []string{"memory:", "pids:"} {
					if l.cgroups.main().v2 {
						hierarchy = "0::"
					}
					if !strings.Contains(string(text), hierarchy+cgroup+"\n") {
						t.Errorf("process is in\n%s, want %s%s", text, hierarchy, cgroup)
					}
				}
				if adj, err := readInt(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); adj != test.adj || err != nil {
					t.Errorf("oom_score_adj %d, %v, want %d", adj, err, test.adj)
				}
				if pids := readPIDs(filepath.Join(l.MemoryCgroupDir(pod.Containers[0].Cgroup), "cgroup.procs")); !slices.Contains(pids, pid) {
					t.Errorf("process %d is not among %v", pid, pids)
				}
			})
		}
	})
}

func TestPodAsListed(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{
			Namespace:        "kube-system",
			Annotations:      map[string]string{"kubernetes.io/config.source": "file"},
			Labels:           map[string]string{"app": "x"},
			MemoryLimit:      32 << 20,
			TerminationGrace: 7 * time.Second,
		})
		sandboxes, err := l.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: pod.SandboxID}})
		if err != nil || len(sandboxes.GetItems()) != 1 {
			t.Fatalf("got %v, %v", sandboxes, err)
		}
		sandbox := sandboxes.GetItems()[0]
		if m := sandbox.GetMetadata(); m.GetName() != pod.Name || m.GetNamespace() != "kube-system" || m.GetUid() != pod.UID {
			t.Errorf("metadata %v", m)
		}
		if sandbox.GetLabels()["app"] != "x" || sandbox.GetLabels()["io.kubernetes.pod.uid"] != pod.UID {
			t.Errorf("labels %v", sandbox.GetLabels())
		}
		if sandbox.GetAnnotations()["kubernetes.io/config.source"] != "file" {
			t.Errorf("annotations %v", sandbox.GetAnnotations())
		}
		answer, err := l.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: pod.Containers[0].ID})
		if err != nil {
			t.Fatal(err)
		}
		status := answer.GetStatus()
		if got := status.GetAnnotations()["io.kubernetes.pod.terminationGracePeriod"]; got != "7" {
			t.Errorf("grace period %q", got)
		}
		if got := status.GetResources().GetLinux().GetMemoryLimitInBytes(); got != 32<<20 {
			t.Errorf("memory limit %d", got)
		}
		if status.GetLogPath() != pod.Containers[0].LogPath {
			t.Errorf("log path %s", status.GetLogPath())
		}
		hosts := filepath.Join(l.KubeletRoot(), "pods", pod.UID, "etc-hosts")
		if !slices.ContainsFunc(status.GetMounts(), func(m *cri.Mount) bool { return m.GetHostPath() == hosts }) {
			t.Errorf("mounts %v", status.GetMounts())
		}
	})
}

func TestBarePod(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{Bare: true})
		if pod.CgroupParent != l.Cgroup() {
			t.Errorf("cgroup parent %s", pod.CgroupParent)
		}
		answer, err := l.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod.SandboxID})
		if err != nil {
			t.Fatal(err)
		}
		if s := answer.GetStatus(); len(s.GetLabels())+len(s.GetAnnotations()) != 0 {
			t.Errorf("labels %v, annotations %v", s.GetLabels(), s.GetAnnotations())
		}
	})
}

func TestMoreContainers(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{}, "exit", "-code", "3")
		if code, err := l.WaitExit(t.Context(), pod.Containers[0].ID); code != 3 || err != nil {
			t.Errorf("got code %d, %v", code, err)
		}
		again, err := l.RunContainer(t.Context(), pod, ContainerSpec{Name: "main", Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		created, err := l.RunContainer(t.Context(), pod, ContainerSpec{Name: "later", Created: true})
		if err != nil {
			t.Fatal(err)
		}
		list, err := l.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: pod.SandboxID}})
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]cri.ContainerState{}
		for _, c := range list.GetContainers() {
			states[c.GetId()] = c.GetState()
		}
		for id, want := range map[string]cri.ContainerState{
			pod.Containers[0].ID: cri.ContainerState_CONTAINER_EXITED,
			again.ID:             cri.ContainerState_CONTAINER_RUNNING,
			created.ID:           cri.ContainerState_CONTAINER_CREATED,
		} {
			if states[id] != want {
				t.Errorf("container %s is %s, want %s", id, states[id], want)
			}
		}
		if ids := pod.ContainerIDs(); len(ids) != 3 || ids[1] != again.ID {
			t.Errorf("the pod knows %v", ids)
		}
		if _, err := l.WaitExit(t.Context(), "none"); err == nil {
			t.Error("waiting for a container that is none: no error")
		}
	})
}

func TestRemovePod(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod, err := l.RunPod(t.Context(), PodSpec{Name: "gone", Containers: []ContainerSpec{{Name: "c", EmptyDirs: map[string]string{"v": "/v"}}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.RemovePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		own := cgroups{path: pod.CgroupParent, hierarchies: l.cgroups.hierarchies}
		if dirs := own.dirs(); len(dirs) > 0 {
			t.Errorf("cgroups left: %v", dirs)
		}
		for _, dir := range []string{pod.LogDirectory, filepath.Join(l.KubeletRoot(), "pods", pod.UID)} {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
}

func TestRunPodErrors(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		if _, err := l.RunPod(t.Context(), PodSpec{}); err == nil {
			t.Error("no name: no error")
		}
		spec := PodSpec{Name: "half", UID: "half", Containers: []ContainerSpec{{Name: "c", Image: "registry.local/none:1"}}}
		if _, err := l.RunPod(t.Context(), spec); err == nil {
			t.Error("no such image: no error")
		}
		list, err := l.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(list.GetItems(), func(s *cri.PodSandbox) bool { return s.GetMetadata().GetName() == "half" }) {
			t.Error("a pod that could not be started was left behind")
		}
	})
}
