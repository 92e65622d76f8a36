package top

import (
	"context"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Source supplies the data of the view. Status and Rank each run in a goroutine of their own and
// return when ctx ends.
type Source interface {
	// Status returns the state of the node. passes are criguard's last actions, newest last; nil
	// keeps the events that are on the screen.
	Status(ctx context.Context) (st api.Status, passes []Event, err error)
	// Rank returns the eviction order for a signal.
	Rank(ctx context.Context, s policy.Signal) (api.Ranking, error)
}
