package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

var update = flag.Bool("update", false, "write the expected screens and the picture in docs anew")

// text returns a screen as plain text.
func text(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	return b.String()
}

// The whole screen in each of its states.
func TestView(t *testing.T) {
	ascii := leaking()
	ascii.options.ASCII = true
	lost := leaking()
	lost.observe(api.Status{}, errors.New("ask service on /run/criguard/criguard.sock: no criguard service answers: connection refused"), noon().Add(2*time.Second))
	direct := NewModel(Options{Signal: policy.PIDAvailable, Interval: time.Second}, withoutService(), noon())
	direct.Rank(policy.PIDAvailable, api.Ranking{}, errors.New("no container runtime answers: dial unix /run/containerd/containerd.sock: connection refused"), noon())
	help := leaking()
	help.press('?')
	paused := leaking()
	paused.press('p')
	ordered := NewModel(Options{Interval: time.Second}, withOrders(), noon())
	ordered.Rank(policy.MemoryAvailable, api.Ranking{}, nil, noon())
	scrolled := crowded()
	scrolled.press(keyPageDown)
	for _, test := range []struct {
		name          string
		model         *Model
		width, height int
		after         time.Duration
	}{
		{"80x24", leaking(), 80, 24, 0},
		{"120x40", leaking(), 120, 40, 0},
		{"40x10", leaking(), 40, 10, 0},
		{"160x30", leaking(), 160, 30, 0},
		{"ascii-80x24", ascii, 80, 24, 0},
		{"lost-80x24", lost, 80, 24, 14 * time.Second},
		{"direct-80x24", direct, 80, 24, 0},
		{"help-80x24", help, 80, 24, 0},
		{"paused-60x16", paused, 60, 16, 90 * time.Second},
		{"ordered-80x24", ordered, 80, 24, 0},
		{"crowded-80x24", scrolled, 80, 24, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := text(test.model.view(test.width, test.height, noon().Add(test.after)))
			golden(t, filepath.Join("testdata", test.name+".txt"), got)
		})
	}
}

// withoutService is the status of a node that is inspected directly.
func withoutService() api.Status {
	st := pressed(3 * gi)
	st.Live, st.PID, st.Uptime, st.Conditions, st.Held, st.HeldBy = false, 0, 0, 0, "", ""
	st.Budget = api.Budget{}
	st.Runtime = api.RuntimeStatus{Endpoint: "unix:///run/containerd/containerd.sock", Error: "no container runtime answers: connection refused"}
	return st
}

// withOrders is a paused service on a drained node.
func withOrders() api.Status {
	st := pressed(3 * gi)
	st.Conditions, st.Held = 0, ""
	st.PausedFor = api.Duration(12 * time.Minute)
	st.Orders = api.Orders{Pause: &api.Pause{Reason: "disk is replaced"}, Drain: &api.Drain{By: api.Peer{UID: 1000}}}
	return st
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (`go test ./cmd/criguard/internal/top -update` writes it anew); got\n%s", path, got)
	}
}

// Turning colours off changes only colours: the text stays, and words carry the meaning.
func TestEncodeWithoutColour(t *testing.T) {
	for i, l := range leaking().view(80, 24, noon()) {
		coloured, plain := l.encode(true), l.encode(false)
		if strip(coloured) != l.String() || strip(plain) != l.String() {
			t.Errorf("line %d: text differs: %q, %q, want %q", i, coloured, plain, l.String())
		}
		for _, code := range []string{"\x1b[31", "\x1b[32", "\x1b[33", "\x1b[1;3", "\x1b[2m"} {
			if strings.Contains(plain, code) {
				t.Errorf("line %d has a colour: %q", i, plain)
			}
		}
	}
	if l := (line{{"x", bad}}); l.encode(true) != "\x1b[1;31mx\x1b[0m" {
		t.Errorf("%q is not red", l.encode(true))
	}
}

// strip removes the styles.
func strip(s string) string {
	var b strings.Builder
	for s != "" {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			break
		}
		_, s, _ = strings.Cut(after, "m")
	}
	return b.String()
}

// At any size and with any hostile data, no line is too wide, there are not too many lines, and
// none contains a terminal command.
func TestViewOfEverySize(t *testing.T) {
	models := []*Model{leaking(), crowded(), hostile(strings.Repeat("\x1b[2J", 400) + "\u202e宽" + "\x9b")}
	widths := []int{120, 140, 200}
	for width := range 112 {
		widths = append(widths, width)
	}
	for _, width := range widths {
		for _, height := range []int{0, 1, 3, 4, 8, 10, 12, 16, 24, 30, 50} {
			for _, m := range models {
				for _, help := range []bool{false, true} {
					m.help = help
					holds(t, m, width, height)
				}
			}
		}
	}
}

func holds(t *testing.T, m *Model, width, height int) {
	t.Helper()
	lines := m.view(width, height, noon())
	if len(lines) > max(height, 0) {
		t.Fatalf("%d×%d: %d lines", width, height, len(lines))
	}
	if height >= minHeight && width >= minWidth && len(lines) != height {
		t.Fatalf("%d×%d: %d lines", width, height, len(lines))
	}
	for i, l := range lines {
		if n := l.columns(); n > width {
			t.Fatalf("%d×%d: line %d has %d columns: %q", width, height, i, n, l)
		}
		for _, r := range l.String() {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || m.options.ASCII && r > 0x7e {
				t.Fatalf("%d×%d: line %d has the character %U: %q", width, height, i, r, l)
			}
		}
	}
}

// hostile sets every untrusted text to s.
func hostile(s string) *Model {
	m := leaking()
	st := pressed(100)
	st.Version, st.Mode, st.ConfigNote, st.Held, st.HeldBy = s, s, s, s, s
	st.Orders = api.Orders{Pause: &api.Pause{Reason: s}, Drain: &api.Drain{Reason: s}}
	st.Alarms, st.Warnings, st.InFlight = []string{s, s}, []string{s}, []string{s}
	st.Runtime = api.RuntimeStatus{Name: s, Version: s, Error: s, Endpoint: s, Up: len(s)%2 == 0}
	st.Signals[0].Status, st.Signals[0].Error = s, s
	for i := range st.Signals[1].Thresholds {
		st.Signals[1].Thresholds[i].Kind, st.Signals[1].Thresholds[i].Value = s, s
	}
	m.observe(st, nil, noon())
	m.observe(st, fmt.Errorf("lost: %s", s), noon())
	r := ranking()
	for i := range r.Pods {
		r.Pods[i].Pod, r.Pods[i].QoS, r.Pods[i].Excluded = s, s, s
	}
	m.Rank(m.chosen, r, nil, noon())
	m.Happen([]Event{{What: s, Why: s}, {noon(), s, s}})
	return m
}

// No data from a node can break the screen.
func FuzzView(f *testing.F) {
	f.Add("a\x1b]0;title\x07b", int64(1), int64(-1), int64(1)<<62, uint8(80), uint8(24), false, "jp?")
	f.Add("\u202e\u0301宽\U0001f468\u200d\U0001f469", int64(-1)<<63, int64(1)<<62, int64(0), uint8(40), uint8(10), true, "9 \t")
	f.Add(strings.Repeat("宽", 300), int64(5), int64(5), int64(5), uint8(21), uint8(4), false, "")
	f.Fuzz(func(t *testing.T, s string, available, capacity, amount int64, width, height uint8, ascii bool, keys string) {
		m := hostile(s)
		m.options.ASCII = ascii
		st := m.status
		for i := range st.Signals {
			sig := &st.Signals[i]
			sig.Available, sig.Capacity, sig.Status = available+int64(i), capacity, policy.OK.String()
			for j := range sig.Thresholds {
				sig.Thresholds[j].Amount, sig.Thresholds[j].Grace = amount, api.Duration(amount)
			}
		}
		st.Signals[2].Signal = policy.Signal(width)
		st.Uptime, st.Runtime.ListedAt, st.Budget.Soft.Next = api.Duration(amount), new(api.Duration(capacity)), api.Duration(available)
		m.observe(st, nil, noon().Add(time.Duration(amount)))
		m.observe(st, nil, noon().Add(4*time.Second))
		holds(t, m, int(width), int(height))
		for _, k := range keys {
			m.press(key(k))
		}
		m.Rank(m.chosen, api.Ranking{Signal: m.chosen, Pods: []api.RankedView{{Pod: s, Usage: available, Known: true, Request: capacity, Keys: []policy.KeyValue{{Key: 200, Value: amount}}}}}, nil, noon())
		holds(t, m, int(width), int(height))
	})
}

// On a small screen, the help wraps and scrolls; its last line can be reached, and any other key ends it.
func TestHelpScrolls(t *testing.T) {
	m := leaking()
	m.press('?')
	said := func() string { return text(m.view(40, 10, noon())) }
	if s := said(); !strings.Contains(s, "HELP, lines 1 to ") || !strings.Contains(s, "choose the signal that") {
		t.Errorf("at the top:\n%s", s)
	}
	seen := said()
	for range 40 {
		m.press(keyDown)
		seen += said()
	}
	for _, part := range []string{"over_by", "criguard(1) for more."} {
		if !strings.Contains(seen, part) {
			t.Errorf("%q is never shown", part)
		}
	}
	end := said()
	m.press(keyUp)
	if said() == end {
		t.Error("it scrolled past its end")
	}
	m.press(keyHome)
	m.press(keyEnd)
	if said() != end {
		t.Errorf("End shows\n%s", said())
	}
	if m.press(keyHome); !strings.Contains(said(), "HELP, lines 1 to ") {
		t.Errorf("Home shows\n%s", said())
	}
	if m.press('x'); strings.Contains(said(), "HELP") {
		t.Error("another key does not end the help")
	}
	m.press('?')
	if s := text(m.view(80, 24, noon())); !strings.Contains(s, "HELP") || strings.Contains(s, "lines 1") {
		t.Errorf("it needs no scrolling here:\n%s", s)
	}
}
