package scenario

import (
	"testing"
	"time"
)

// A crossing is placed between the readings around it, nearer to the one that is closer to the level. The first one counts.
func TestCrossing(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, tt := range []struct {
		above []int64 // readings, one a millisecond
		want  time.Duration
	}{
		{[]int64{500, 100, -100, -300}, 1500 * time.Microsecond},
		{[]int64{500, 10, -90}, 1100 * time.Microsecond},
		{[]int64{500, 0, -90}, time.Millisecond},
		{[]int64{500, 100, -100, 400, 100, -100}, 1500 * time.Microsecond},
		{[]int64{-5, -10}, 0},
	} {
		var c crossing
		for i, above := range tt.above {
			c.see(begin.Add(time.Duration(i)*time.Millisecond), above)
		}
		if got := c.at.Sub(begin); got != tt.want {
			t.Errorf("readings %d: crossed after %s, want %s", tt.above, got, tt.want)
		}
	}
	var c crossing
	if c.see(begin, 5); !c.at.IsZero() {
		t.Error("crossed above the level")
	}
}
