package reclaim

import (
	"context"
	"maps"
	"slices"

	"github.com/criguard/criguard/cri"
)

// maxLogsLeft limits the logs that a Collector remembers.
const maxLogsLeft = 1 << 10

// noteLog remembers the log of a container that is about to be removed. Once it is, the runtime no longer knows the log, and the removal
// may answer late, or the disk of the logs not at all.
func (c *Collector) noteLog(d cri.ContainerDetail) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.logsLeft) < maxLogsLeft {
		c.logsLeft[d.ID] = d
	}
}

// removeLog removes a noted log. If that fails, it stays noted.
func (c *Collector) removeLog(ctx context.Context, d cri.ContainerDetail) error {
	err := c.onFiles(ctx, func() error { return c.logs.RemoveOf(d.LogPath, d.Name, d.Attempt) })
	if err == nil {
		c.forgetLog(d.ID)
	}
	return err
}

func (c *Collector) forgetLog(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.logsLeft, id)
}

// removeLogsLeft removes the logs that earlier removals left, unless the container is still there. It ends with the first that fails: the
// disk may not answer.
func (c *Collector) removeLogsLeft(ctx context.Context, inv inventory) error {
	c.mu.Lock()
	left := maps.Clone(c.logsLeft)
	c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(left)) {
		if slices.ContainsFunc(inv.Containers, func(c cri.Container) bool { return c.ID == id }) {
			continue
		}
		if d := left[id]; LogIsTaken(d, inv.Containers) {
			c.forgetLog(id)
		} else if err := c.removeLog(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// LogIsTaken reports whether the log of a removed container may be that of another one by now: without a log in its directory, a kubelet
// counts the attempts of a pod's containers from zero again.
func LogIsTaken(d cri.ContainerDetail, listed []cri.Container) bool {
	return slices.ContainsFunc(listed, func(c cri.Container) bool {
		return c.ID != d.ID && c.Name == d.Name && c.Attempt == d.Attempt && c.Labels[labelPodUID] == d.Labels[labelPodUID]
	})
}
