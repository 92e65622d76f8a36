package lab

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestImages(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		const extra = 3 << 20
		images, err := l.ImportImages(t.Context(),
			ImageSpec{Name: "registry.local/pulled:1", Tags: []string{"registry.local/pulled:latest"}, ExtraBytes: extra, RepoDigest: true},
			ImageSpec{Name: "registry.local/loaded:1"})
		if err != nil {
			t.Fatal(err)
		}
		pulled, loaded := imageStatus(t, l, images[0].ID), imageStatus(t, l, "registry.local/loaded:1")
		if !slices.Contains(pulled.GetRepoTags(), "registry.local/pulled:latest") || !slices.Equal(pulled.GetRepoDigests(), []string{images[0].RepoDigest}) {
			t.Errorf("tags %v, digests %v", pulled.GetRepoTags(), pulled.GetRepoDigests())
		}
		if loaded.GetId() != images[1].ID || len(loaded.GetRepoDigests()) != 0 {
			t.Errorf("ID %s, digests %v", loaded.GetId(), loaded.GetRepoDigests())
		}
		if more := int64(pulled.GetSize()) - int64(loaded.GetSize()); more < extra || more > extra+64<<10 {
			t.Errorf("%d bytes larger, want about %d", more, extra)
		}
		if _, err := l.images.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: images[0].ID}}); err != nil {
			t.Fatal(err)
		}
		if left := imageStatus(t, l, images[0].ID); left != nil {
			t.Errorf("removed, but there is %v", left)
		}
	})
}

func TestPinnedImages(t *testing.T) {
	onEach(t, func(t *testing.T, l *Lab) {
		spec := ImageSpec{Name: "registry.local/pinned:1", Pinned: true}
		_, err := l.ImportImage(t.Context(), spec)
		if !showsPins(l.Version()) {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{spec.Name: true, PauseImage: true, WorkloadImage: false} {
			if got := imageStatus(t, l, name).GetPinned(); got != want {
				t.Errorf("%s: pinned %v", name, got)
			}
		}
	})
}

func TestShowsPins(t *testing.T) {
	for version, want := range map[string]bool{
		"1.5.9": false, "1.6.20~ds1": false, "1.6.22": true, "1.7.2": false, "1.7.28": true, "2.4.2+unknown": true, "main": true,
	} {
		if got := showsPins(version); got != want {
			t.Errorf("%s: got %v", version, got)
		}
	}
}

func imageStatus(t *testing.T, l *Lab, name string) *cri.Image {
	t.Helper()
	answer, err := l.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetImage()
}

// TestFilesystems fills the small filesystems of a lab of its own.
func TestFilesystems(t *testing.T) {
	needsRoot(t)
	l, err := Start(t.Context(), Options{
		Containerd:  Containerd2,
		NodeFSBytes: 64 << 20, ImageFSBytes: 96 << 20, ImageFSInodes: 2000,
		Say: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeClean(t, l)
	image, node := statfs(t, l.ContainerdRoot()), statfs(t, l.KubeletRoot())
	if image.Blocks*uint64(image.Bsize) != 96<<20 || image.Files != 2000 {
		t.Errorf("image filesystem: %d blocks of %d, %d inodes", image.Blocks, image.Bsize, image.Files)
	}
	if node.Blocks*uint64(node.Bsize) != 64<<20 {
		t.Errorf("node filesystem: %d blocks of %d", node.Blocks, node.Bsize)
	}
	volume := map[string]string{"v": "/v"}
	pod, err := l.RunPod(t.Context(), PodSpec{Name: "full", Containers: []ContainerSpec{
		{Name: "layer", Args: []string{"fill", "-mib", "20"}},
		{Name: "volume", Args: []string{"fill", "-path", "/v/file", "-mib", "10", "-files", "2"}, EmptyDirs: volume},
		{Name: "inodes", Args: []string{"inodes", "-count", "500"}},
		{Name: "too-much", Args: []string{"fill", "-path", "/v/all", "-mib", "100", "-rate", "1000"}, EmptyDirs: volume},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range pod.Containers[:3] {
		waitLog(t, c, ": done")
		if i == 1 {
			waitLog(t, c, "fill: done")
		}
	}
	waitLog(t, pod.Containers[3], "no space left on device")
	full := statfs(t, l.ContainerdRoot())
	if wrote := (image.Bfree - full.Bfree) * uint64(image.Bsize); wrote < 20<<20 {
		t.Errorf("%d bytes fewer on the image filesystem", wrote)
	}
	if made := image.Ffree - full.Ffree; made < 500 {
		t.Errorf("%d inodes fewer on the image filesystem", made)
	}
	if free := statfs(t, l.KubeletRoot()).Bavail; free != 0 {
		t.Errorf("%d blocks free on the node filesystem", free)
	}
	if code, err := l.PID(t.Context(), pod.Containers[3].ID); code == 0 || err != nil {
		t.Errorf("the container that filled the disk is gone: %v", err)
	}
}

func statfs(t *testing.T, path string) unix.Statfs_t {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		t.Fatal(err)
	}
	return s
}
