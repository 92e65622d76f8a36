package lab

import (
	"context"
	"errors"
	"time"
)

// pollInterval is the polling interval for conditions without a notification.
const pollInterval = 10 * time.Millisecond

// poll calls done until it returns true or ctx ends. On timeout, its error contains done's last
// error. An error together with false means "not yet".
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
