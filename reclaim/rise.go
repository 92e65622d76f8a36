package reclaim

import (
	"context"
	"time"
)

// Rise follows an amount that comes back because something is being deleted, such as free bytes. Another writer may take some of
// it meanwhile: only a new highest value is a rise.
type Rise struct {
	Highest int64
	At      time.Duration // of the last rise
}

// See takes a reading. One that is less than least above the highest value is noise, not a rise.
func (r *Rise) See(now time.Duration, amount, least int64) {
	if amount-r.Highest >= max(least, 1) {
		*r = Rise{amount, now}
	}
}

// Settling bounds a wait for room that comes back after something was removed: a runtime answers before it deletes the files.
type Settling struct {
	Still   time.Duration // end when there was no rise for this long
	AtMost  time.Duration
	Percent int64 // of what is missing is the least rise; 0 = any is one
}

// waitPoll is the pause between two measurements.
const waitPoll = 20 * time.Millisecond

// Await measures a target until there is enough room or no more comes. A filesystem that frees what was deleted only later has more time.
func (s Settling) Await(ctx context.Context, target Target, enough func(Room) bool) error {
	var bytes, inodes Rise
	began := time.Now()
	for {
		room, err := target(ctx)
		if err != nil || enough(room) {
			return err
		}
		now := time.Since(began)
		bytes.See(now, room.Bytes, room.LackBytes/100*s.Percent)
		inodes.See(now, room.Inodes, room.LackInodes/100*s.Percent)
		if now-max(bytes.At, inodes.At) >= max(s.Still, room.Lag) || now >= max(s.AtMost, 2*room.Lag) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(waitPoll):
		}
	}
}
