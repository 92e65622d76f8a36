package trace

import (
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// PodOf returns the facts that classify a pod, not the result, because the simulation's configuration may
// have other rules. Its times are relative to start.
func PodOf(p *inventory.Pod, c *policy.Candidate, start time.Duration) Pod {
	qos := p.QoS.String()
	created, grace := api.Duration(p.Created-start), api.Duration(p.Grace)
	noStats := !c.Memory.Known && !c.PIDs.Known
	t := Pod{
		Name: p.FullName(), UID: p.UID, QoS: &qos, Static: &p.Static, Created: &created, GracePeriod: &grace,
		StorageRequest: QuantityOf(p.StorageRequest), NoStats: &noStats, Labels: p.Labels,
	}
	if p.RequestSource != api.SourceUnknown {
		t.MemoryRequest = QuantityOf(p.MemoryRequest)
	}
	t.Priority = p.OwnPriority
	if p.Protection == inventory.ProtectedSelf {
		t.Protected = new(true)
	}
	for _, name := range []string{config.AnnotationPriority, config.AnnotationProtect, config.AnnotationStorage} {
		if v, ok := p.Annotations[name]; ok {
			if t.Annotations == nil {
				t.Annotations = map[string]string{}
			}
			t.Annotations[name] = v
		}
	}
	if c.Memory.Known {
		t.MemoryUsage, t.MemoryFile = QuantityOf(c.Memory.Value), QuantityOf(c.ActiveFile)
	}
	if c.Swap.Known {
		t.SwapUsage = QuantityOf(c.Swap.Value)
	}
	if c.PIDs.Known && c.PIDs.Value >= 0 {
		t.PIDs = &c.PIDs.Value
	}
	if c.Disk.Known() {
		t.DiskUsage = diskOf(c.Disk)
	}
	if c.Inodes.Known() {
		t.InodesUsage = diskOf(c.Inodes)
	}
	return t
}

// QuantityOf returns n as a quantity, or 0 if n is negative.
func QuantityOf(n int64) *Quantity {
	q := Quantity(max(n, 0))
	return &q
}

func diskOf(u policy.DiskUsage) *Disk {
	return &Disk{Quantity(u.Rootfs.Value), Quantity(u.Logs.Value), Quantity(u.Volumes.Value), u.LogsPlace}
}
