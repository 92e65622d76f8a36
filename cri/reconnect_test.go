package cri

import (
	"testing"
	"time"
)

// The longest wait between two attempts to reach a runtime that restarts.
func TestReconnectWithinASecond(t *testing.T) {
	b := reconnect().Backoff
	if longest := time.Duration(float64(b.MaxDelay) * (1 + b.Jitter)); longest <= 0 || longest > time.Second {
		t.Errorf("a runtime that is back is found after %s, want a second at most", longest)
	}
}
