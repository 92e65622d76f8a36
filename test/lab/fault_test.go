package lab

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestKillAndRestartContainerd(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{})
		pid, err := l.PID(t.Context(), pod.Containers[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		first := l.ContainerdPID()
		if err := l.KillContainerd(); err != nil {
			t.Fatal(err)
		}
		if l.ContainerdPID() != 0 || exists(first) {
			t.Error("containerd is still there")
		}
		if !exists(pid) {
			t.Error("the pod went with containerd")
		}
		if err := l.PauseContainerd(); err == nil {
			t.Error("pausing what does not run: no error")
		}
		for range 2 { // from dead, and from alive
			if err := l.RestartContainerd(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again, err := l.PID(t.Context(), pod.Containers[0].ID); again != pid || err != nil {
				t.Errorf("after the restart the container is process %d, %v, want %d", again, err, pid)
			}
		}
	})
}

func TestPauseContainerd(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		if err := l.PauseContainerd(); err != nil {
			t.Fatal(err)
		}
		if err := ask(t, l); err == nil {
			t.Error("a paused containerd answers")
		}
		if err := l.ResumeContainerd(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "wait for an answer", func() (bool, error) {
			err := ask(t, l)
			return err == nil, err
		})
	})
}

func TestRestartPausedContainerd(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		if err := l.PauseContainerd(); err != nil {
			t.Fatal(err)
		}
		if err := l.RestartContainerd(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := ask(t, l); err != nil {
			t.Error(err)
		}
	})
}

func TestPauseShim(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		hung, other := runPod(t, l, PodSpec{}), runPod(t, l, PodSpec{Namespace: "other"})
		if err := l.PauseShim(hung.SandboxID); err != nil {
			t.Fatal(err)
		}
		stop := func(pod *RunningPod, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return l.StopPod(ctx, pod)
		}
		if err := stop(other, callTimeout); err != nil {
			t.Errorf("stop another pod: %v", err)
		}
		if err := stop(hung, time.Second); err == nil {
			t.Error("a pod with a paused shim was stopped")
		}
		if err := l.ResumeShim(hung.SandboxID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "stop the pod", func() (bool, error) {
			err := stop(hung, callTimeout)
			return err == nil, err
		})
		if err := l.PauseShim("none"); err == nil {
			t.Error("pausing the shim of no pod: no error")
		}
	})
}

func TestKillContainer(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		pod := runPod(t, l, PodSpec{}, "fork", "-count", "5")
		if err := l.KillContainer(t.Context(), pod.Containers[0]); err != nil {
			t.Fatal(err)
		}
		if code, err := l.WaitExit(t.Context(), pod.Containers[0].ID); code != 137 || err != nil {
			t.Errorf("got code %d, %v", code, err)
		}
		if err := l.KillContainer(t.Context(), RunningContainer{Cgroup: "/"}); err == nil {
			t.Error("killing a cgroup of somebody else: no error")
		}
	})
}

func ask(t *testing.T, l *Lab) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := l.runtime.Version(ctx, &cri.VersionRequest{})
	return err
}

func exists(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
