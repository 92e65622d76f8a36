package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crash()
	}
	os.Exit(Main(m))
}

// onEach runs a test on every runtime, each with its shared lab.
func onEach(t *testing.T, test func(t *testing.T, l *Lab)) {
	for _, runtime := range Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) { test(t, Shared(t, runtime)) })
	}
}

// runPod runs a pod with one container for the length of a test.
func runPod(t *testing.T, l *Lab, spec PodSpec, args ...string) *RunningPod {
	t.Helper()
	spec.Name = strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	spec.Containers = []ContainerSpec{{Name: "main", Args: args}}
	pod, err := l.RunPod(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.RemovePod(context.Background(), pod); err != nil {
			t.Error(err)
		}
	})
	return pod
}

// eventually waits for a condition that takes milliseconds on a quiet machine.
func eventually(t *testing.T, what string, condition func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := poll(ctx, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// memoryOf reads what the container's cgroup is charged with, in bytes.
func memoryOf(l *Lab, c RunningContainer) (int64, error) {
	name := "memory.usage_in_bytes"
	if l.cgroups.main().v2 {
		name = "memory.current"
	}
	return readInt(filepath.Join(l.MemoryCgroupDir(c.Cgroup), name))
}

func readInt(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// waitLog waits until the container has said something.
func waitLog(t *testing.T, c RunningContainer, text string) {
	t.Helper()
	eventually(t, "wait for log", func() (bool, error) {
		log, err := os.ReadFile(c.LogPath)
		if !strings.Contains(string(log), text) {
			return false, fmt.Errorf("log says %q, %w", log, err)
		}
		return true, nil
	})
}
