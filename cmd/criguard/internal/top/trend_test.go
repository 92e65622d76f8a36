package top

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

func TestTrend(t *testing.T) {
	var tr trend
	at := noon()
	for i := range 60 {
		tr.add(at.Add(time.Duration(i)*time.Second), 8*gi-int64(i)*40*mi)
		if want := i >= 3; tr.known() != want {
			t.Errorf("after %d s known is %t", i, tr.known())
		}
		if i > 0 && math.Abs(tr.rate+40*mi) > 1 {
			t.Errorf("after %d s %f, want -40Mi/s", i, tr.rate)
		}
	}
	// When a fall ends, the trend fades, but not at once.
	for i := range 40 {
		tr.add(at.Add(time.Duration(60+i)*time.Second), 8*gi-59*40*mi)
		if i == 5 && (tr.rate > -15*mi || tr.rate < -30*mi) {
			t.Errorf("5 s after the end: %f", tr.rate)
		}
	}
	if tr.rate < -mi {
		t.Errorf("40 s after the end: %f", tr.rate)
	}
	before := tr
	tr.add(tr.at, 0)
	tr.add(tr.at.Add(-time.Second), 0)
	if tr != before {
		t.Error("a reading that is not later counts")
	}
	if tr.add(tr.at.Add(2*time.Minute), 5); tr.known() || tr.rate != 0 {
		t.Error("readings are compared over two minutes")
	}
}

func TestReaches(t *testing.T) {
	falling := func(perSecond float64) *trend {
		return &trend{since: noon(), at: noon().Add(10 * time.Second), rate: perSecond}
	}
	guarded := signalAt(policy.MemoryAvailable, 2*gi, 8*gi, hardAt("512Mi", 512*mi), softAt("1Gi", gi))
	for _, test := range []struct {
		name      string
		trend     *trend
		available int64
		kind      string
		in        time.Duration
	}{
		{"the nearer one", falling(-64 * mi), 2 * gi, soft, 16 * time.Second},
		{"the one that is not met", falling(-64 * mi), gi - 64*mi, hard, 7 * time.Second},
		{"both met", falling(-64 * mi), 100 * mi, "", 0},
		{"rising", falling(64 * mi), 2 * gi, "", 0},
		{"steady", falling(-1), 2 * gi, "", 0},
		{"not within a day", falling(-12 * 1024), 8 * gi, "", 0},
		{"not watched for long", &trend{since: noon(), at: noon().Add(time.Second), rate: -64 * mi}, 2 * gi, "", 0},
		{"at once", falling(math.Inf(-1)), 2 * gi, soft, 0},
		{"not a number", falling(math.NaN()), 2 * gi, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := guarded
			s.Available = test.available
			s.Thresholds = append([]api.ThresholdStatus(nil), guarded.Thresholds...)
			for i := range s.Thresholds {
				s.Thresholds[i].Met = s.Available < s.Thresholds[i].Amount
			}
			if kind, in := test.trend.reaches(&s); kind != test.kind || in != test.in {
				t.Errorf("%s in %s, want %s in %s", kind, in, test.kind, test.in)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{amount(policy.MemoryAvailable, 900*mi), "900Mi"},
		{amount(policy.PIDAvailable, 999_999), "999999"},
		{amount(policy.PIDAvailable, 1_000_000), "1.0M"},
		{amount(policy.NodeFSInodesFree, 999_960_000), "1.0G"},
		{amount(policy.NodeFSInodesFree, math.MaxInt64), "9.2E"},
		{amount(policy.NodeFSInodesFree, math.MinInt64), "-9.2E"},
		{amount(policy.MemoryStall, 996_000), "99.6%"},
		{rate(policy.MemoryAvailable, -40*mi), "-40Mi/s"},
		{rate(policy.PIDAvailable, 12.7), "+12/s"},
		{age(300 * time.Millisecond), "0s"},
		{age(-time.Hour), "0s"},
		{age(95 * time.Second), "1m35s"},
		{age(26*time.Hour + 7*time.Minute), "26h7m"},
		{age(72 * time.Hour), "3d"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

// A signal that fluctuates, or makes one step, has no forecast; one that falls steadily under noise has.
func TestTrendFromNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct {
		name     string
		disk     bool
		value    func(second int) int64
		forecast bool
	}{
		{"up and down", false, func(int) int64 { return 2*gi + r.Int64N(60*mi) }, false},
		{"one step", false, func(s int) int64 { return 2*gi - int64(s/590)*300*mi }, false},
		{"falling", false, func(s int) int64 { return 7*gi - int64(s)*10*mi }, true},
		{"falling under noise", false, func(s int) int64 { return 7*gi - int64(s)*10*mi + r.Int64N(20*mi) }, true},
		{"disk, up and down", true, func(int) int64 { return 2*gi + r.Int64N(60*mi) }, false},
		{"disk, one image", true, func(s int) int64 { return 2*gi - int64(s/590)*gi/2 }, false},
		{"disk, in steps", true, func(s int) int64 { return 4*gi - int64(s/20)*100*mi }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := trend{disk: test.disk}
			s := signalAt(policy.MemoryAvailable, 8*gi, 8*gi, hardAt("512Mi", 512*mi))
			for second := range 600 {
				s.Available = test.value(second)
				tr.add(noon().Add(time.Duration(second)*time.Second), s.Available)
			}
			if kind, in := tr.reaches(&s); (kind != "") != test.forecast {
				t.Errorf("forecast %q in %s, at %.0f per second", kind, in, tr.rate)
			}
		})
	}
}

// A disk's trend covers minutes.
func TestDiskTrend(t *testing.T) {
	m := NewModel(Options{}, api.Status{}, noon())
	if !m.trends[policy.NodeFSAvailable].disk || m.trends[policy.MemoryAvailable].disk {
		t.Error("the window does not follow the signal")
	}
	tr := trend{disk: true}
	for i := range 120 {
		tr.add(noon().Add(time.Duration(i)*time.Second), 8*gi-int64(min(i, 100))*mi)
		if want := i >= 90; tr.known() != want {
			t.Errorf("after %d s known is %t", i, tr.known())
		}
	}
	if tr.rate > -mi/2 {
		t.Errorf("20 s after the end: %f", tr.rate)
	}
}
