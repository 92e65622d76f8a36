package critest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	s *Server
}

func (v *imageService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	for _, img := range v.s.images {
		resp.Images = append(resp.Images, img.message())
	}
	return resp, nil
}

func (v *imageService) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if img := v.s.image(req.GetImage().GetImage()); img != nil {
		return &runtimeapi.ImageStatusResponse{Image: img.message()}, nil
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

// RemoveImage differs most between the runtimes. containerd removes the whole image by any name and
// refuses nothing. CRI-O refuses to remove an image in use by its id, and removes a tag alone while
// there are others. It reports success and does nothing for a digest of an image in use with several
// names, and for the id of an artifact, which it removes by name only.
func (v *imageService) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	ref := req.GetImage().GetImage()
	if ref == "" {
		return nil, status.Error(codes.Unknown, "no image specified")
	}
	img := v.s.image(ref)
	if img == nil {
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	if !v.s.traits.crio {
		v.s.removeImage(img)
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	used, names := v.s.used(img), len(img.tags)
	switch {
	case img.artifact && isID(ref):
	case img.artifact:
		v.s.removeImage(img)
	case !isID(ref) && slices.Contains(img.digests, ref) && used && names > 1:
	case !isID(ref) && names > 1:
		img.tags = slices.DeleteFunc(img.tags, sameName(ref))
	case used:
		return nil, fmt.Errorf("delete image: image used by %s: image is in use by a container", img.id)
	default:
		v.s.removeImage(img)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo returns the usage that the runtimes count, a small part of it: CRI-O's walk sees only
// metadata, containerd's sampler only snapshots.
func (v *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	fs := func(dir string, used uint64) *runtimeapi.FilesystemUsage {
		return &runtimeapi.FilesystemUsage{
			Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir},
			UsedBytes: &runtimeapi.UInt64Value{Value: used}, InodesUsed: &runtimeapi.UInt64Value{Value: 12},
		}
	}
	resp := &runtimeapi.ImageFsInfoResponse{}
	switch {
	case v.s.traits.crio:
		resp.ImageFilesystems = append(resp.ImageFilesystems, fs(v.s.imageFS, 24<<10))
		resp.ContainerFilesystems = append(resp.ContainerFilesystems, fs(v.s.imageFS, 24<<10))
	case v.s.traits.snapshotters: // containerd 2: one for each snapshotter, the default one first
		resp.ImageFilesystems = append(resp.ImageFilesystems, fs(v.s.imageFS, 1<<20), fs("/var/lib/containerd/io.containerd.snapshotter.v1.native", 0))
	default:
		resp.ImageFilesystems = append(resp.ImageFilesystems, fs(v.s.imageFS, 1<<20))
	}
	return resp, nil
}
