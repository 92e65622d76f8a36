package cri

import (
	"context"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FsUsage is how much of a filesystem something uses. containerd samples it
// every 10 s and gives zeros with no time until the first sample: that is
// unknown, not empty.
type FsUsage struct {
	Mountpoint  string // a directory on the filesystem; it may not exist
	UsedBytes   int64  // meaningless unless Known
	InodesUsed  int64  // meaningless unless InodesKnown
	At          time.Time
	Known       bool
	InodesKnown bool
}

// ImageFilesystems names the directories that hold images and, where a runtime
// keeps them apart, writable layers. Trust the mount points and ask statfs about
// them: what the runtimes count as used leaves out most of it (CRI-O its layers,
// containerd the compressed blobs).
func (c *Client) ImageFilesystems(ctx context.Context) (images, containers []FsUsage, err error) {
	resp, err := call(ctx, c.timeout, "ask image filesystems", c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, nil, err
	}
	return fsUsagesOf(resp.GetImageFilesystems()), fsUsagesOf(resp.GetContainerFilesystems()), nil
}

// WritableLayer asks what one container wrote into its root filesystem. It asks
// for that container alone: a call for all of them hangs when one shim does.
func (c *Client) WritableLayer(ctx context.Context, containerID string) (FsUsage, error) {
	resp, err := call(ctx, c.timeout, "measure container "+short(containerID), c.runtime.ContainerStats,
		&runtimeapi.ContainerStatsRequest{ContainerId: containerID})
	if err != nil {
		return FsUsage{}, err
	}
	return fsUsageOf(resp.GetStats().GetWritableLayer()), nil
}

func fsUsagesOf(ms []*runtimeapi.FilesystemUsage) []FsUsage {
	out := make([]FsUsage, 0, len(ms))
	for _, m := range ms {
		if m.GetFsId().GetMountpoint() != "" {
			out = append(out, fsUsageOf(m))
		}
	}
	return out
}

func fsUsageOf(m *runtimeapi.FilesystemUsage) FsUsage {
	u := FsUsage{Mountpoint: absolute(m.GetFsId().GetMountpoint()), At: unixNano(m.GetTimestamp())}
	if u.At.IsZero() {
		return u
	}
	u.UsedBytes, u.Known = amount(m.GetUsedBytes())
	u.InodesUsed, u.InodesKnown = amount(m.GetInodesUsed())
	return u
}

// amount reads an optional unsigned number. What does not fit is unknown.
func amount(v *runtimeapi.UInt64Value) (int64, bool) {
	if v == nil || v.GetValue() > math.MaxInt64 {
		return 0, false
	}
	return int64(v.GetValue()), true
}
