package simulate

import "time"

// Summary is what happened over a whole trace.
type Summary struct {
	Lines   int
	Length  time.Duration // from the first line to the last
	Ended   []Ended       // in the order of their ends
	Waiting int           // requests that are left after the last line
	start   time.Duration
}

// Ended is a request that was granted, or whose patience has ended.
type Ended struct {
	Request
	At     time.Duration // time of the line
	Waited time.Duration // since the line of the request
	Result string        // "granted" or "out of patience"
}

// Results of requests.
const (
	granted       = "granted"
	outOfPatience = "out of patience"
)

// Granted returns how many requests were granted.
func (s *Summary) Granted() (n int) {
	for i := range s.Ended {
		if s.Ended[i].Result == granted {
			n++
		}
	}
	return n
}

func (s *Summary) begin(at time.Duration) {
	if s.Lines == 0 {
		s.start = at
	}
	s.Lines++
	s.Length = at - s.start
}

func (s *Summary) add(at time.Duration, q queued, result string) {
	s.Ended = append(s.Ended, Ended{q.Request, at, at - q.at, result})
}
