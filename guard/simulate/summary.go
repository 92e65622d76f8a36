package simulate

import "time"

// Summary is what a configuration did over a whole trace.
type Summary struct {
	Lines  int
	Length time.Duration // from the first line to the last
	Stops  []TimedStop
	Holds  []Hold    // in the order in which they first occurred
	Began  time.Time // wall clock of At 0; zero = not known
	start  time.Duration
}

// TimedStop is a stop with the time of its line.
type TimedStop struct {
	At time.Duration
	Stop
}

// Hold is a reason why stops for a threshold were held back, with the first and the last line on which they
// were.
type Hold struct {
	Reason, Threshold string
	First, Last       time.Duration
}

// add adds a pass. by is the threshold whose stop was held back.
func (s *Summary) add(p *Pass, by string) {
	at := time.Duration(p.At)
	if s.Lines == 0 {
		s.start = at
	}
	s.Lines++
	s.Length = at - s.start
	if p.Stop != nil {
		s.Stops = append(s.Stops, TimedStop{at, *p.Stop})
	}
	if p.Held != "" {
		h := s.Hold(p.Held, by)
		if h == nil {
			s.Holds = append(s.Holds, Hold{Reason: p.Held, Threshold: by, First: at})
			h = &s.Holds[len(s.Holds)-1]
		}
		h.Last = at
	}
}

// Hold returns the hold with a reason and a threshold, or nil.
func (s *Summary) Hold(reason, threshold string) *Hold {
	for i := range s.Holds {
		if s.Holds[i].Reason == reason && s.Holds[i].Threshold == threshold {
			return &s.Holds[i]
		}
	}
	return nil
}
