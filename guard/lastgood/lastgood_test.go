package lastgood

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A read that hangs is started once and waited for once; its result is used when it ends.
func TestValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Value[int]
		var begun atomic.Int32
		answers := make(chan int, 1)
		get := func() (v int, took time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), FileTimeout)
			defer cancel()
			began := time.Now()
			v = a.Get(ctx, func() int { begun.Add(1); return <-answers })
			return v, time.Since(began)
		}
		answers <- 1
		if v, took := get(); v != 1 || took != 0 {
			t.Errorf("a read that returns: %d after %s", v, took)
		}
		if v, took := get(); v != 1 || took != FileTimeout {
			t.Errorf("a read that hangs: %d after %s", v, took)
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

// A call that hangs is not waited for.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan int, 1)
		answers <- 1
		if v := Within(time.Second, func() int { return <-answers }, 2); v != 1 {
			t.Errorf("a read that returns: %d", v)
		}
		began := time.Now()
		if v := Within(time.Second, func() int { return <-answers }, 2); v != 2 || time.Since(began) != time.Second {
			t.Errorf("a read that hangs: %d after %s", v, time.Since(began))
		}
		answers <- 3
	})
}
