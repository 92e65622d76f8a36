package cri_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestFind(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.CRIO)
	none := filepath.Join(t.TempDir(), "none.sock")
	off := critest.ServeWithoutCRI(t)

	t.Run("passes over what does not answer", func(t *testing.T) {
		endpoint, v, err := cri.Network{}.Find(t.Context(), []string{none, off, second.Endpoint(), first.Endpoint()}, patience)
		if err != nil || endpoint != second.Endpoint() || !v.IsCRIO() {
			t.Errorf("found %s, %v, %v", endpoint, v, err)
		}
	})
	t.Run("passes over what hangs", func(t *testing.T) {
		defer first.Hang()()
		endpoint, _, err := cri.Network{}.Find(t.Context(), []string{first.Endpoint(), second.Endpoint()}, 5*time.Second)
		if err != nil || endpoint != second.Endpoint() {
			t.Errorf("found %s, %v", endpoint, err)
		}
	})
	t.Run("tells of each what it said", func(t *testing.T) {
		_, _, err := cri.Network{}.Find(t.Context(), []string{none, off, "tcp://x"}, patience)
		if !errors.Is(err, cri.ErrUnavailable) || !errors.Is(err, cri.ErrUnsupported) {
			t.Errorf("error = %v", err)
		}
		for _, want := range []string{none, off, "tcp://x", "disabled_plugins"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
	})
	t.Run("tells in one line which are not there", func(t *testing.T) {
		_, _, err := cri.Network{}.Find(t.Context(), []string{none, "unix://" + none + "2"}, patience)
		if !errors.Is(err, cri.ErrUnavailable) || !strings.HasSuffix(err.Error(), ": no socket "+none+", "+none+"2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := cri.Network{}.Find(ctx, []string{first.Endpoint(), second.Endpoint()}, patience)
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), second.Endpoint()) {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("has nothing to try", func(t *testing.T) {
		if _, _, err := (cri.Network{}).Find(t.Context(), nil, patience); err == nil {
			t.Error("found something")
		}
	})
}

func TestProbe(t *testing.T) {
	busy, idle := critest.New(t, critest.Containerd2), critest.New(t, critest.CRIO)
	busy.AddPod(critest.PodSpec{})
	idle.AddPod(critest.PodSpec{NotReady: true})
	mute := critest.New(t, critest.Containerd16)
	mute.Inject(critest.Fault{Method: "ListPodSandbox", Hang: true})
	for _, c := range []struct {
		name, endpoint string
		pods           bool
		err            error
	}{
		{"with a pod", busy.Endpoint(), true, nil},
		{"with none but a dead one", idle.Endpoint(), false, nil},
		{"that lists nothing", mute.Endpoint(), false, cri.ErrTimeout},
		{"without the CRI", critest.ServeWithoutCRI(t), false, cri.ErrUnsupported},
		{"that is not there", filepath.Join(t.TempDir(), "none.sock"), false, cri.ErrUnavailable},
	} {
		timeout := patience
		if errors.Is(c.err, cri.ErrTimeout) {
			timeout = 100 * time.Millisecond
		}
		v, pods, err := cri.Network{}.Probe(t.Context(), c.endpoint, timeout)
		if !errors.Is(err, c.err) || pods != c.pods || (v.RuntimeName == "") != (c.err != nil) {
			t.Errorf("one %s: %+v, pods %v, %v", c.name, v, pods, err)
		}
	}
	if _, _, err := (cri.Network{}).Probe(t.Context(), "tcp://x", 0); err == nil {
		t.Error("what is no socket was probed")
	}
}

func TestKnownEndpoints(t *testing.T) {
	known := cri.KnownEndpoints()
	generic := slices.Index(known, "unix:///run/containerd/containerd.sock")
	for _, own := range []string{
		"unix:///run/k3s/containerd/containerd.sock", "unix:///run/k0s/containerd.sock", "unix:///var/snap/microk8s/common/run/containerd.sock",
	} {
		if i := slices.Index(known, own); i < 0 || i > generic {
			t.Errorf("%s is at %d, the generic one at %d", own, i, generic)
		}
	}
	for _, endpoint := range known {
		c, err := cri.Dial(endpoint, 0)
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
			continue
		}
		_ = c.Close()
	}
}

func TestCrictlEndpoint(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"as crictl writes it", "runtime-endpoint: unix:///run/containerd/containerd.sock\nimage-endpoint: unix:///x\ntimeout: 0\n", "unix:///run/containerd/containerd.sock"},
		{"not first", "timeout: 2\ndebug: false\nruntime-endpoint: /run/crio/crio.sock", "/run/crio/crio.sock"},
		{"double quotes", `runtime-endpoint: "unix:///run/a.sock" # the one`, "unix:///run/a.sock"},
		{"single quotes", `runtime-endpoint: 'unix:///run/a.sock'`, "unix:///run/a.sock"},
		{"quoted key", `"runtime-endpoint" : unix:///run/a.sock`, "unix:///run/a.sock"},
		{"comment", "runtime-endpoint: unix:///run/a#1.sock # not this", "unix:///run/a#1.sock"},
		{"commented out", "# runtime-endpoint: unix:///no\nruntime-endpoint: unix:///yes", "unix:///yes"},
		{"windows line ends", "timeout: 1\r\nruntime-endpoint: unix:///run/a.sock\r\n", "unix:///run/a.sock"},
		{"byte order mark", "\ufeffruntime-endpoint: unix:///run/a.sock", "unix:///run/a.sock"},
		{"tab", "runtime-endpoint:\tunix:///run/a.sock", "unix:///run/a.sock"},
		{"document start", "---\nruntime-endpoint: unix:///run/a.sock\n...\n", "unix:///run/a.sock"},
		{"empty value", "runtime-endpoint:\n", ""},
		{"empty quotes", `runtime-endpoint: ""`, ""},
		{"null", "runtime-endpoint: ~", ""},
		{"only a comment", "runtime-endpoint: # none", ""},
		{"open quote", `runtime-endpoint: "unix:///run/a.sock`, ""},
		{"another key", "image-endpoint: unix:///run/a.sock\nx-runtime-endpoint: y", ""},
		{"nested", "other:\n  runtime-endpoint: unix:///no\n", ""},
		{"no space", "runtime-endpoint:unix:///no", ""},
		{"empty file", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "crictl.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := cri.CrictlEndpoint(path)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		if _, err := cri.CrictlEndpoint(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error = %v", err)
		}
	})
}
