package lab

import (
	"context"
	"errors"
	"time"
)

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 10 * time.Millisecond

// poll asks done until it says true or ctx ends; then the last error of done says what was missing. An error together with false
// means "not yet".
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
