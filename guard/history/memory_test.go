package history

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// rankedPass returns the pass of a stop on a node with this many pods.
func rankedPass(id uint64, pods int) api.Pass {
	p := api.Pass{
		ID: id, Time: time.Unix(1_700_000_000+int64(id), 0).UTC(), At: api.Duration(time.Duration(id) * time.Second), Wake: "timer",
		Stop: &api.StopView{Pod: fmt.Sprintf("shop/victim-%d", id), Sandbox: strings.Repeat("0123456789abcdef", 4), Signal: "memory.available", Kind: "hard"},
	}
	for s := range policy.SignalCount {
		p.Signals = append(p.Signals, api.SignalView{Signal: s, Available: 1 << 30, Capacity: 1 << 32, Status: "ok"})
	}
	for i := range pods {
		p.Ranked = append(p.Ranked, api.RankedView{
			Position: i + 1, Pod: fmt.Sprintf("namespace-%d/pod-of-the-pass-%d-%d", i%7, id, i), QoS: "Burstable", Usage: 1 << 27, Known: true, Request: 1 << 26,
			Sandbox: fmt.Sprintf("%064d", i), UID: fmt.Sprintf("8a6e0b7f-3f1d-4c11-9a6e-%012d", i), RequestSource: "annotation",
			Keys: []policy.KeyValue{{Key: policy.KeyOverRequest, Value: 1}, {Key: policy.KeyPriority, Value: 0}, {Key: policy.KeyUsage, Value: 1 << 26}},
		})
	}
	return p
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The file holds the full history of a node with many pods; memory holds only the recent passes.
func TestHistoryMemory(t *testing.T) {
	const passes, pods, most = 1000, 110, 2 << 20
	dir := t.TempDir()
	before := heapInUse()
	h := Open(dir, passes)
	for id := range uint64(passes) {
		h.Add(rankedPass(id+1, pods))
		if err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	kept := heapInUse() - before
	t.Logf("%d passes of %d pods: %.1f MiB of heap", passes, pods, float64(kept)/(1<<20))
	if kept > most {
		t.Errorf("%d bytes of heap, want %d at most", kept, most)
	}
	runtime.KeepAlive(h)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = Open(dir, passes)
	defer func() { _ = h.Close() }()
	if kept := heapInUse() - before; kept > most {
		t.Errorf("after a restart: %d bytes of heap, want %d at most", kept, most)
	}
	if h.LastID() != passes {
		t.Errorf("the last pass is %d", h.LastID())
	}
}
