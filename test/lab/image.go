package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The images in every lab. Both run the same program.
const (
	PauseImage    = "registry.local/pause:1"    // the sandbox image
	WorkloadImage = "registry.local/workload:1" // the default image of containers
)

// ImportImage makes an image and imports it into the runtime. It returns when the CRI lists the
// image with every name in the specification.
func (l *Lab) ImportImage(ctx context.Context, spec ImageSpec) (Image, error) {
	images, err := l.ImportImages(ctx, spec)
	if err != nil {
		return Image{}, err
	}
	return images[0], nil
}

// ImportImages is ImportImage for many images at once, which is faster than one after the other.
func (l *Lab) ImportImages(ctx context.Context, specs ...ImageSpec) ([]Image, error) {
	for _, spec := range specs {
		if spec.Pinned && !showsPins(l.version) {
			return nil, fmt.Errorf("pin image %s: containerd %s does not show pins, 1.6.22, 1.7.3 and 2.0 do: %w", spec.Name, l.version, errors.ErrUnsupported)
		}
	}
	path := filepath.Join(l.claim.Dir, "import.tar")
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write image archive: %w", err)
	}
	defer os.Remove(path)
	images, err := WriteArchive(f, l.workload, specs...)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("write image archive: %w", err)
	}
	if err := l.ImportArchive(ctx, path); err != nil {
		return nil, err
	}
	for i, spec := range specs {
		if spec.Pinned {
			if err := run(l.ctr(ctx, "images", "label", spec.Name, "io.cri-containerd.pinned=pinned")); err != nil {
				return nil, fmt.Errorf("pin image %s: %w", spec.Name, err)
			}
		}
		if err := l.waitImage(ctx, spec, images[i]); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// ImportArchive imports the images of an OCI archive into the runtime. The CRI may list them a moment later.
func (l *Lab) ImportArchive(ctx context.Context, path string) error {
	args := []string{"images", "import", "--snapshotter", l.snapshotter}
	if l.programs.Major > 1 {
		args = append(args, "--local")
	}
	if err := run(l.ctr(ctx, append(args, path)...)); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	return nil
}

// waitImage waits until the CRI shows the image as specified. The CRI learns of imports through
// events.
func (l *Lab) waitImage(ctx context.Context, spec ImageSpec, image Image) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		answer, err := l.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image.ID}})
		if err != nil {
			return false, err
		}
		got := answer.GetImage()
		switch {
		case got == nil:
			return false, errors.New("not listed")
		case !slices.Contains(got.GetRepoTags(), spec.Name):
			return false, fmt.Errorf("listed as %v only", got.GetRepoTags())
		case spec.RepoDigest && !slices.Contains(got.GetRepoDigests(), image.RepoDigest):
			return false, errors.New("listed without its digest")
		case spec.Pinned && !got.GetPinned():
			return false, errors.New("not listed as pinned")
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("find imported image %s: %w", spec.Name, err)
	}
	return nil
}

// showsPins reports whether a version of containerd marks pinned images in its listing. It treats
// an unreadable version as a new one.
func showsPins(version string) bool {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || major > 1 {
		return true
	}
	switch minor {
	case 6:
		return patch >= 22
	case 7:
		return patch >= 3
	}
	return minor > 7
}

// ctr prepares a command of containerd's own client.
func (l *Lab) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return l.programs.command(ctx, "ctr", append([]string{"-a", l.socket(), "-n", "k8s.io"}, args...)...)
}

// socket returns the path of containerd's socket.
func (l *Lab) socket() string { return strings.TrimPrefix(l.Endpoint(), "unix://") }
