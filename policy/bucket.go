package policy

import "time"

// Bucket is a rate of stops: Burst at once, and one more every Every. A burst
// below 1 allows none; otherwise an Every of 0 allows any number.
type Bucket struct {
	Burst int
	Every time.Duration
}

// fill is how much of a bucket is used. It does not depend on the rate, so that
// it survives a change of the configuration.
type fill struct {
	Used int           `json:"used"`
	At   time.Duration `json:"at"` // since when the next token has been coming back
}

// after is the fill with the tokens back that came back until now.
func (b Bucket) after(f fill, now time.Duration) fill {
	if b.Every <= 0 || b.Burst < 1 {
		return f
	}
	f.Used = min(f.Used, b.Burst)
	back := (now - f.At) / b.Every
	if back >= time.Duration(f.Used) {
		return fill{At: now}
	}
	f.Used -= int(back)
	f.At += back * b.Every
	return f
}

// take is the fill after one more stop.
func (b Bucket) take(f fill, now time.Duration) fill {
	f = b.after(f, now)
	if f.Used == 0 {
		f.At = now
	}
	f.Used = min(f.Used+1, max(b.Burst, 1))
	return f
}

// left is how many tokens an up-to-date fill leaves.
func (b Bucket) left(f fill) int {
	if b.Every <= 0 {
		return max(b.Burst, 0)
	}
	return max(b.Burst-f.Used, 0)
}

// wait is when an up-to-date fill leaves one: 0 when it does.
func (b Bucket) wait(f fill, now time.Duration) time.Duration {
	if b.left(f) > 0 || b.Burst < 1 {
		return 0
	}
	return f.At + b.Every - now
}
