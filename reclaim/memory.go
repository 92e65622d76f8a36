package reclaim

import (
	"context"
	"fmt"
	"time"
)

// MemoryReclaimer makes the kernel reclaim memory of a cgroup (memory.reclaim of cgroup v2). Reclaiming
// fewer bytes than requested is not an error.
type MemoryReclaimer interface {
	MemoryReclaim(rel string, bytes int64) error
}

// MemoryTarget is a cgroup whose memory may be reclaimed.
type MemoryTarget struct {
	Cgroup string // relative to the hierarchy
	Name   string
	Bytes  int64 // at most this many
}

// Limits of reclaiming memory: the kernel writes it to swap and to disk, and a node that runs out of
// memory cannot wait for that. They apply between two chunks: a write in progress cannot be
// interrupted, so a caller that cannot wait for it must continue without it.
const (
	memoryChunk  = 32 << 20
	memoryAtMost = 500 * time.Millisecond
)

// reclaimMemory reclaims the memory of one cgroup after another, in the plan's order, chunk by chunk.
func (j *job) reclaimMemory(ctx context.Context) {
	started := time.Now()
	for _, t := range j.plan.Memory {
		it := Item{Kind: KindCgroup, ID: t.Cgroup, Name: t.Name, Size: t.Bytes, Why: "reclaimed by the kernel"}
		late := time.Since(started) >= memoryAtMost
		switch {
		case j.over(ctx):
			return
		case j.memory == nil:
			j.keep(it, "memory cannot be reclaimed here")
		case j.gauge.met():
			j.keep(it, whyMet)
		case late:
			j.keep(it, "no time left")
		default:
			j.reclaimFrom(ctx, t, it, started)
		}
	}
}

func (j *job) reclaimFrom(ctx context.Context, t MemoryTarget, it Item, started time.Time) {
	it.Size = 0
	for it.Size < t.Bytes && !j.gauge.met() && !j.over(ctx) && time.Since(started) < memoryAtMost {
		piece := Item{Size: min(t.Bytes-it.Size, memoryChunk)}
		if !j.plan.DryRun {
			if err := j.gauge.begin(ctx); err != nil {
				j.report.fail(Item{}, err)
				break
			}
			if err := j.memory.MemoryReclaim(t.Cgroup, piece.Size); err != nil {
				j.failed(it, fmt.Errorf("reclaim memory of %s: %w", t.Name, err))
				break
			}
		}
		before := j.gauge.room.Bytes
		it.Size += piece.Size
		if err := j.gauge.after(ctx, piece); err != nil {
			j.report.fail(Item{}, err)
		}
		if j.gauge.target != nil && !j.plan.DryRun && j.gauge.room.Bytes <= before {
			break // there is no more to reclaim
		}
	}
	if it.Size > 0 {
		j.report.Removed = append(j.report.Removed, it)
	}
	j.settled = true // the kernel frees before it answers
}
