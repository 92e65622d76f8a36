package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

func TestChoose(t *testing.T) {
	m := leaking()
	for _, step := range []struct {
		key  key
		want policy.Signal
	}{
		{keyDown, policy.MeminfoAvailable}, // allocatable memory is absent and has no thresholds
		{'j', policy.SwapAvailable},        // absent, but has thresholds
		{keyTab, policy.MemoryStall},
		{keyUp, policy.SwapAvailable},
		{'k', policy.MeminfoAvailable},
		{keyLeft, policy.MemoryAvailable},
		{keyBackTab, policy.IOStall}, // wraps around
		{keyRight, policy.MemoryAvailable},
		{'5', policy.PIDAvailable},
		{'9', policy.IOStall},
		{'x', policy.IOStall},
	} {
		if m.press(step.key); m.chosen != step.want {
			t.Errorf("key %d chooses %s, want %s", step.key, m.chosen, step.want)
		}
	}
	m = NewModel(Options{Signal: policy.ContainerFSAvailable}, pressed(gi), noon())
	if m.press(keyDown); m.chosen != policy.MemoryAvailable {
		t.Errorf("from a signal that is not shown to %s", m.chosen)
	}
	m = NewModel(Options{}, api.Status{}, noon())
	m.press(keyDown)
	m.press('1')
}

// Everything on the screen belongs to the chosen signal.
func TestRankOfAnotherSignal(t *testing.T) {
	m := leaking()
	m.press(keyDown)
	if !m.rankingAt.IsZero() || len(m.ranking.Pods) > 0 {
		t.Error("the ranking for another signal stays")
	}
	m.Rank(policy.MemoryAvailable, ranking(), nil, noon())
	if len(m.ranking.Pods) > 0 {
		t.Error("a ranking that came too late is shown")
	}
	r := ranking()
	r.Signal = m.chosen
	m.Rank(m.chosen, r, nil, noon())
	m.Rank(m.chosen, api.Ranking{}, errors.New("x"), noon())
	if len(m.ranking.Pods) != 7 {
		t.Error("an error takes the last ranking away")
	}
}

// While the service is lost, the last values stay on the screen and show their age.
func TestLost(t *testing.T) {
	m := leaking()
	said := func(after time.Duration) string { return text(m.view(100, 30, noon().Add(after))) }
	if s := said(time.Second); strings.Contains(s, "LOST") || strings.Contains(s, "old") {
		t.Errorf("lost too early:\n%s", s)
	}
	m.observe(api.Status{}, errors.New("gone"), noon().Add(2*time.Second))
	m.observe(api.Status{}, errors.New("gone still"), noon().Add(5*time.Second))
	if s := said(9 * time.Second); !strings.Contains(s, "SERVICE LOST 7s ago; values 9s old") || !strings.Contains(s, "900Mi") ||
		!strings.Contains(s, "gone still") || !strings.Contains(s, "batch/leaky") || !strings.Contains(s, "available, 9s old") {
		t.Errorf("9 s later:\n%s", s)
	}
	m.observe(pressed(5*gi), nil, noon().Add(10*time.Second))
	m.Rank(m.chosen, ranking(), nil, noon().Add(10*time.Second))
	if s := said(10 * time.Second); strings.Contains(s, "LOST") || strings.Contains(s, "old") || !strings.Contains(s, "5Gi") {
		t.Errorf("back:\n%s", s)
	}
}

// The pod list does not scroll past its end.
func TestScroll(t *testing.T) {
	m := crowded()
	has := func(want string) {
		t.Helper()
		if s := text(m.view(80, 24, noon())); !strings.Contains(s, want+" ") {
			t.Errorf("no %s in\n%s", want, s)
		}
	}
	m.press(keyEnd)
	has("ns/pod-1000")
	m.press(keyPageDown)
	has("ns/pod-1000")
	m.press(keyHome)
	has("ns/pod-1")
	m.press(' ')
	has("ns/pod-11")
	m.press(keyPageUp)
	m.press(keyPageUp)
	has("ns/pod-1")
}

// A met threshold is on the screen even when only a few rows fit.
func TestMetIsShown(t *testing.T) {
	m := leaking()
	m.press('1')
	for height := 8; height < 30; height++ {
		if s := text(m.view(80, height, noon())); !strings.Contains(s, "imagefs.available") || !strings.Contains(s, "▸1") {
			t.Errorf("height %d:\n%s", height, s)
		}
	}
}

// Readings from before the first poll make the trend known at once.
func TestTrendFromBefore(t *testing.T) {
	var before []Reading
	for i := 20; i > 0; i-- {
		before = append(before,
			Reading{policy.MemoryAvailable, noon().Add(-time.Duration(i) * time.Second), 900*mi + int64(i)*40*mi},
			Reading{policy.SignalCount, noon(), 1})
	}
	m := NewModel(Options{Interval: time.Second}, pressed(900*mi), noon(), before...)
	if s := text(m.view(80, 24, noon())); !strings.Contains(s, "-40Mi/s soft; hard 12s") {
		t.Errorf("shows\n%s", s)
	}
	if s := text(NewModel(Options{Interval: time.Second}, pressed(900*mi), noon()).view(80, 24, noon())); strings.Contains(s, "Mi/s") {
		t.Errorf("a trend from one look:\n%s", s)
	}
}
