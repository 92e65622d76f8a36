package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// rates of the hogs, in MiB per second. The last is about the most that one thread can take.
var rates = []float64{200, 800, 3000}

// deepHeadroom is a second headroom, in MiB: the kernel needs longer to tear down a larger hog,
// whichever guard killed it.
const deepHeadroom = 1024

// measureLatency lets hogs cross a threshold and measures how long they survive: under criguard,
// under criguard killing only through the runtime, under criguard without an event of the kernel, and
// under earlyoom.
func measureLatency(ctx context.Context, b *bench) (err error) {
	if err := b.stage(ctx); err != nil {
		return err
	}
	peer, err := b.newEarlyoom(ctx)
	if err != nil {
		return err
	}
	for _, rate := range rates {
		for _, start := range []func(context.Context) (*criguard, error){b.starter(killDirect), b.starter(throughCRI), b.startWithoutEvent} {
			if err := b.race(ctx, start, rate, b.headroom, b.tries); err != nil {
				return err
			}
		}
		if err := b.row(ctx, peer, rate, b.headroom, b.tries); err != nil {
			return err
		}
	}
	if err := b.race(ctx, b.starter(killDirect), 800, deepHeadroom, b.tries/2); err != nil {
		return err
	}
	return b.row(ctx, peer, 800, deepHeadroom, b.tries/2)
}

// starter returns a function that starts a guard with the given way to kill.
func (b *bench) starter(direct string) func(context.Context) (*criguard, error) {
	return func(ctx context.Context) (*criguard, error) {
		return b.startCriguard(ctx, direct, b.lab.Endpoint(), false)
	}
}

// race runs the tries with a criguard of their own.
func (b *bench) race(ctx context.Context, start func(context.Context) (*criguard, error), rate float64, headroom int64, tries int) (err error) {
	g, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	return b.row(ctx, g, rate, headroom, tries)
}

// row adds one guard at one rate to the report.
func (b *bench) row(ctx context.Context, c contender, rate float64, headroom int64, tries int) error {
	b.say("%s: %d tries at %.0f MiB/s, %d MiB below what is available", c.name(), tries, rate, headroom)
	row := latency{Guard: c.name(), Rate: rate, HeadroomMiB: headroom}
	if err := b.tryAll(ctx, c, &row, tries, trouble{}); err != nil {
		return err
	}
	if row.Dead.N > 0 {
		b.report.Latency = append(b.report.Latency, row)
	}
	return nil
}

// attempts limits how often a try is repeated because something other than the hog crossed the
// level.
const attempts = 8

// tryAll runs the tries of a row.
func (b *bench) tryAll(ctx context.Context, c contender, row *latency, tries int, in trouble) error {
	for range tries {
		if err := b.tryRepeatedly(ctx, c, row, in); err != nil {
			return err
		}
	}
	row.finish()
	b.say("  %s", row.line())
	return nil
}

// tryRepeatedly adds a try to a row, and repeats it until it is not spoiled.
func (b *bench) tryRepeatedly(ctx context.Context, c contender, row *latency, in trouble) error {
	for attempt := 0; ; attempt++ {
		t, err := b.try(ctx, c, hogSpec(b.hogs), row.Rate, row.HeadroomMiB, in)
		if err == nil && !t.spoiled {
			row.add(t)
			return nil
		}
		if err != nil && !errors.Is(err, errNoBreach) {
			return fmt.Errorf("%s at %.0f MiB/s: %w", c.name(), row.Rate, err)
		}
		row.Spoiled++
		if err := b.mend(ctx); err != nil {
			return err
		}
		if attempt == attempts {
			b.say("  too much else goes on: a try is left out after %d attempts", attempts)
			return nil
		}
	}
}

func hogSpec(n int) lab.PodSpec { return lab.PodSpec{Name: fmt.Sprintf("hog-%d", n)} }

// try is one breach.
type try struct {
	killed, dead, relieved time.Duration // since the crossing
	overshoot              int64
	size                   int64   // of the hog in the end, bytes
	reached                float64 // the hog's actual rate until its end, MiB/s
	right                  bool    // the guard killed only the hog
	spoiled                bool    // something other than the hog crossed the level
}

// slowTry is how long a hog may grow before its try is explained. It is far above what is usual, and below any wait of a guard.
const slowTry = 100 * time.Millisecond

// extra is how much a hog takes beyond its headroom before it stops by itself, in MiB: two seconds'
// worth and a margin.
func extra(rate float64) int64 { return int64(2*rate) + 512 }

func (b *bench) try(ctx context.Context, c contender, spec lab.PodSpec, rate float64, headroom int64, in trouble) (_ try, err error) {
	b.hogs++
	h, err := b.startHog(ctx, spec, rate, headroom+extra(rate))
	if err != nil {
		return try{}, err
	}
	defer h.remove(ctx, b)
	if err := c.prepare(ctx, h); err != nil {
		return try{}, err
	}
	others, err := b.watchBystanders(h.pod)
	if err != nil {
		return try{}, err
	}
	defer others.close()
	now, err := c.available()
	if err != nil {
		return try{}, err
	}
	level := now - headroom*mib
	if err := c.arm(ctx, level); err != nil {
		return try{}, err
	}
	defer func() { err = errors.Join(err, c.disarm(ctx)) }()
	// Avoid running in step with a guard's polling.
	time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
	end := func() error { return nil }
	if in.begin != nil {
		if end, err = in.begin(ctx, b, h); err != nil {
			return try{}, err
		}
	}
	if err := h.letGo(); err != nil {
		return try{}, errors.Join(err, end())
	}
	s, err := watch(ctx, h, level, c.available)
	if err := errors.Join(err, end(), c.disarm(ctx)); err != nil {
		return try{}, err
	}
	if in.begin != nil {
		if err := b.gone(ctx, h); err != nil {
			return try{}, err
		}
	}
	t := try{
		killed: s.last - s.crossed, dead: s.dead - s.crossed, relieved: s.relieved - s.crossed, overshoot: s.overshoot,
		size:    h.taken(),
		reached: float64(h.taken()) / mib / (s.last - h.began()).Seconds(),
	}
	t.spoiled = s.spoiled(headroom)
	blamed, err := c.blamed(ctx, h)
	if err != nil {
		return try{}, err
	}
	if account := c.account(s.crossed); t.killed > slowTry && !t.spoiled && account != "" {
		b.say("  SLOW: bench/%s grew for %s after the crossing%s", h.pod.Name, tenths(t.killed), account)
	}
	ended := others.ended()
	t.right = ended == 0 && blamed == "bench/"+h.pod.Name
	if !t.right && !t.spoiled {
		b.say("  WRONG: %d bystanders ended; %s blames %q, the hog is bench/%s", ended, c.name(), blamed, h.pod.Name)
	}
	if ended > 0 && !t.spoiled {
		return t, b.mend(ctx)
	}
	return t, nil
}
