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

// The images that every lab has. Both run the same program.
const (
	PauseImage    = "registry.local/pause:1"    // the sandbox image
	WorkloadImage = "registry.local/workload:1" // what containers run that name no image
)

// ImportImage makes an image and puts it into the runtime. It returns when the CRI lists the image with every name that the
// specification asks for.
func (l *Lab) ImportImage(ctx context.Context, spec ImageSpec) (Image, error) {
	images, err := l.ImportImages(ctx, spec)
	if err != nil {
		return Image{}, err
	}
	return images[0], nil
}

// ImportImages is ImportImage for many images at once, which costs less time than one after the other.
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
	args := []string{"images", "import", "--snapshotter", l.snapshotter}
	if l.programs.Major > 1 {
		args = append(args, "--local")
	}
	if err := run(l.ctr(ctx, append(args, path)...)); err != nil {
		return nil, fmt.Errorf("import images: %w", err)
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

// waitImage waits until the CRI, which hears of imports by way of events, shows the image as specified.
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
		case !containsAll(got.GetRepoTags(), append([]string{spec.Name}, spec.Tags...)):
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

// showsPins says whether a version of containerd lists pinned images as such. A version that cannot be read is taken for a new one.
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

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

// ctr prepares containerd's own client.
func (l *Lab) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return l.programs.command(ctx, "ctr", append([]string{"-a", l.socket(), "-n", "k8s.io"}, args...)...)
}

// socket is the path of containerd's socket.
func (l *Lab) socket() string { return strings.TrimPrefix(l.Endpoint(), "unix://") }
