package eviction

import (
	"time"

	"github.com/criguard/criguard/guard/api"
)

// outage follows whether the runtime answers, for the records.
type outage struct {
	away     bool          // the runtime did not answer the last listing
	since    time.Duration // when that began; 0 = in an earlier run of the service
	recorded bool          // the last record says so
	next     time.Duration // when it may be recorded again
}

const (
	firstListing = 5 * time.Second // a service that starts has not listed yet
	outagePause  = time.Minute     // a runtime that fails again and again must not fill the history
)

// follow returns the change to record, or nil. err is that of the last listing.
func (o *outage) follow(now time.Duration, err error) *api.RuntimeChange {
	away := err != nil
	if away && !o.away && !o.recorded {
		o.since = now
	}
	o.away = away
	if away == o.recorded || away && now < o.next {
		return nil
	}
	change := &api.RuntimeChange{Up: !away}
	if away {
		change.Error = err.Error()
	} else {
		o.next = now + outagePause
	}
	if o.since > 0 {
		change.For = api.Rounded(now - o.since)
	}
	o.recorded = away
	return change
}
