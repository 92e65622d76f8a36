package cri

import (
	"context"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FsUsage is how much of a filesystem an object uses. containerd samples it every 10 s and returns
// zeros without a time until the first sample; the usage is then unknown, not zero.
type FsUsage struct {
	Mountpoint  string // a directory on the filesystem; it may not exist
	UsedBytes   int64  // meaningless unless Known
	InodesUsed  int64  // meaningless unless InodesKnown
	At          time.Time
	Known       bool
	InodesKnown bool
}

// layerTimeout limits how long a runtime may take for the size of one layer.
const layerTimeout = 30 * time.Second

// ImageFilesystems returns the directories that hold images and, if the runtime stores them separately,
// writable layers. Use the mount points and call statfs on them: most usage is missing from the
// runtimes' figures (CRI-O leaves out its layers, containerd the compressed blobs).
func (c *Client) ImageFilesystems(ctx context.Context) (images, containers []FsUsage, err error) {
	resp, err := call(ctx, c.timeout, "ask image filesystems", c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, nil, err
	}
	return fsUsagesOf(resp.GetImageFilesystems()), fsUsagesOf(resp.GetContainerFilesystems()), nil
}

// WritableLayer returns how much one container wrote to its root filesystem. It queries that container
// alone: one hung shim would block a call for all of them. CRI-O walks the layer before it answers, so that the largest one
// takes it longest.
func (c *Client) WritableLayer(ctx context.Context, containerID string) (FsUsage, error) {
	resp, err := call(ctx, max(c.timeout, layerTimeout), "measure container "+short(containerID), c.runtime.ContainerStats,
		&runtimeapi.ContainerStatsRequest{ContainerId: containerID})
	if err != nil {
		return FsUsage{}, err
	}
	return fsUsageOf(resp.GetStats().GetWritableLayer()), nil
}

// ExitedLayer is WritableLayer for a container that has exited: containerd answers for such a one only in a list. It returns
// unknown amounts for another runtime: CRI-O lists only the containers that run, and cri-dockerd would forget the layers of all
// that are not in the list. A container that is gone is an error: for one that it does not have, containerd would ask all shims.
func (c *Client) ExitedLayer(ctx context.Context, containerID string) (FsUsage, error) {
	if v, err := c.Version(ctx); err != nil || !v.IsContainerd() {
		return FsUsage{}, err
	}
	if d, err := c.ContainerStatus(ctx, containerID); err != nil || d.State != Exited {
		return FsUsage{}, err
	}
	resp, err := call(ctx, c.timeout, "measure exited container "+short(containerID), c.runtime.ListContainerStats,
		&runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: containerID}})
	if err != nil {
		return FsUsage{}, err
	}
	for _, s := range resp.GetStats() {
		if s.GetAttributes().GetId() == containerID {
			return fsUsageOf(s.GetWritableLayer()), nil
		}
	}
	return FsUsage{}, nil
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

// amount reads an optional unsigned number. A number that does not fit is unknown.
func amount(v *runtimeapi.UInt64Value) (int64, bool) {
	if v == nil || v.GetValue() > math.MaxInt64 {
		return 0, false
	}
	return int64(v.GetValue()), true
}
