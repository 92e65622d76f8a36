package guard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
)

// What hangs is waited for once, and begun once; what it says when it is through is known then.
func TestAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a aside[int]
		var begun atomic.Int32
		answers := make(chan int, 1)
		get := func() (v int, took time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), fileWait)
			defer cancel()
			began := time.Now()
			v = a.get(ctx, func() int { begun.Add(1); return <-answers })
			return v, time.Since(began)
		}
		answers <- 1
		if v, took := get(); v != 1 || took != 0 {
			t.Errorf("one that answers: %d after %s", v, took)
		}
		if v, took := get(); v != 1 || took != fileWait {
			t.Errorf("one that hangs: %d after %s", v, took)
		}
		if v, took := get(); v != 1 || took != 0 || begun.Load() != 2 {
			t.Errorf("while it hangs: %d after %s, begun %d times", v, took, begun.Load())
		}
		answers <- 2
		synctest.Wait()
		answers <- 3
		if v, took := get(); v != 3 || took != 0 || begun.Load() != 3 {
			t.Errorf("after it: %d after %s, begun %d times", v, took, begun.Load())
		}
	})
}

// A listing that hangs in what no deadline bounds keeps the loop waiting once, and for no longer
// than a stop may wait.
func TestInventoryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		var asked atomic.Int32
		l := &lister{
			source: func(context.Context) (podSource, error) {
				asked.Add(1)
				<-disk
				return fixedSource{sandboxes: []cri.Sandbox{{ID: "s", Ready: true}}}, nil
			},
			build: func(s listed) Pod { return Pod{Candidate: policy.Candidate{ID: s.ID}} }, refresh: func(context.Context) {}, publish: func(Inventory) {},
			now: func() time.Duration { return time.Hour }, clock: time.Now, turn: make(chan struct{}, 1),
		}
		l.current.Store(&Inventory{At: time.Minute})
		n := &node{lister: l}
		began := time.Now()
		for range 3 {
			if inv := n.Inventory(t.Context(), true); inv.At != time.Minute {
				t.Errorf("listed at %s", inv.At)
			}
		}
		if took := time.Since(began); took != freshWait || asked.Load() != 1 {
			t.Errorf("waited for %s and asked %d times, want %s and once", took, asked.Load(), freshWait)
		}
		close(disk)
		synctest.Wait()
		if inv := n.Inventory(t.Context(), true); inv.At != time.Hour || len(inv.Pods) != 1 || asked.Load() != 2 {
			t.Errorf("once it answers: %+v, asked %d times", inv, asked.Load())
		}
	})
}

// stall replaces a file by one that opening waits for, as on a disk that stalls, until the end.
func stall(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
}

// The kubelet's file says what it said last while its disk stalls.
func TestKubeletStateThatHangs(t *testing.T) {
	k := newKubeletState(t.TempDir())
	k.wait = time.Minute
	state := `{"data":"{\"entries\":{\"uid\":{\"ContainerResources\":{\"a\":{\"requests\":{\"memory\":\"7\"}}}}}}"}`
	if err := os.WriteFile(k.path, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() string { return fmt.Sprint(k.read(t.Context())["uid"].Memory) }
	if got := read(); got != "7" {
		t.Fatalf("read %s", got)
	}
	stall(t, k.path)
	k.wait = time.Millisecond
	for range 2 {
		if got := read(); got != "7" {
			t.Errorf("while the disk stalls: %s", got)
		}
	}
}

// A runtime is found whether crictl's configuration can be read or not.
func TestConnWithCrictlsThatHangs(t *testing.T) {
	named, known := critest.New(t, critest.CRIO), critest.New(t, critest.Containerd2)
	c, _ := connUnderTest(t, known)
	wantAt(t, c, known)
	c.crictl = filepath.Join(t.TempDir(), "crictl.yaml")
	if err := os.WriteFile(c.crictl, []byte("runtime-endpoint: "+named.Endpoint()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantAt(t, c, named)
	stall(t, c.crictl)
	c.fileWait = time.Millisecond
	wantAt(t, c, named)
}
