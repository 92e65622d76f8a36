package lab

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
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

func readInt(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
