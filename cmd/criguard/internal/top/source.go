package top

import (
	"context"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// Source tells what is shown. Status and Rank are called from a goroutine each, and each
// returns when ctx ends.
type Source interface {
	// Status is the state of the node. Passes are what the guard did last, the newest at the
	// end; nil leaves what is shown as it is.
	Status(ctx context.Context) (st guard.Status, passes []Event, err error)
	// Rank is who would be stopped first for a signal.
	Rank(ctx context.Context, s policy.Signal) (guard.Ranking, error)
}
