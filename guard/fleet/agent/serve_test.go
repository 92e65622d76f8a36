package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// pipes is a listener whose connections are pipes, which a bubble of virtual time can wait for.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// dial connects a client.
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// manager records the notifications to the service manager.
type manager struct {
	mu    sync.Mutex
	lines []string
}

func (m *manager) add(line string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lines) == 0 || m.lines[len(m.lines)-1] != line {
		m.lines = append(m.lines, line)
	}
	return nil
}

func (m *manager) Ready(status string) error    { return m.add("ready: " + status) }
func (m *manager) Stopping(status string) error { return m.add("stopping: " + status) }
func (m *manager) Status(line string) error     { return m.add(line) }

// served is a service in virtual time.
type served struct {
	*testing.T
	etcd    *etcdFake
	http    *http.Client
	manager *manager
	log     *bytes.Buffer
	stop    func() error
}

// serve runs a test with a service that starts at a time since boot.
func serve(t *testing.T, dir string, boot time.Duration, test func(s *served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() time.Duration { return boot + time.Since(start) }
		s := &served{T: t, etcd: &etcdFake{now: now}, manager: &manager{}, log: &bytes.Buffer{}}
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, ServeOptions{
				Agent: Options{
					Fleet: "f", Zone: "z1", Node: "n1", Client: s.etcd, Disconnect: func() {}, Rates: fleet.DefaultRates(),
					Soft: policy.Bucket{Burst: 2, Every: time.Minute}, Rand: rand.New(rand.NewPCG(1, 2)), Now: now,
				},
				Listener: l, Dir: dir, Log: slog.New(slog.NewTextHandler(s.log, nil)), Notifier: s.manager,
			})
		}()
		s.http = &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
		s.stop = sync.OnceValue(func() error { cancel(); return <-done })
		defer func() { _ = s.stop() }()
		synctest.Wait()
		test(s)
	})
}

// wants sends the state of a guard each minute for a time.
func (s *served) wants(pools string, d time.Duration) {
	s.Helper()
	for ; ; d -= time.Minute {
		s.do(http.MethodPut, "/v1/state", `{"wants":[`+pools+`],"digest":"d1","version":"v1"}`)
		time.Sleep(min(d, time.Minute))
		synctest.Wait()
		if d <= time.Minute {
			return
		}
	}
}

func (s *served) do(method, path, body string) string {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.Fatalf("%s %s: %s, %v", method, path, resp.Status, err)
	}
	return string(text)
}

// metrics returns the agent's metrics by name and labels.
func (s *served) metrics() map[string]string {
	s.Helper()
	all := map[string]string{}
	for line := range strings.Lines(s.do(http.MethodGet, "/v1/metrics", "")) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i >= 0 && line[0] != '#' {
			all[strings.TrimPrefix(line[:i], "criguard_fleet_")] = line[i+1:]
		}
	}
	return all
}

func (s *served) wantMetrics(want map[string]string) {
	s.Helper()
	got := s.metrics()
	for name, value := range want {
		if got[name] != value {
			s.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

// The agent serves, reports what it sees to the service manager and as metrics, and ends on request.
func TestServe(t *testing.T) {
	serve(t, t.TempDir(), time.Hour, func(s *served) {
		s.etcd.set(func(f *etcdFake) {
			f.survey = etcd.Survey{Zone: fleet.Zone{Members: 12, Wanting: 7}, State: fleet.Partial}
		})
		s.wantMetrics(map[string]string{`connected`: "0", `zone_members`: "0", `permits_total{reason="fleet",result="granted"}`: "0"})
		s.wants(`"memory"`, time.Minute)
		s.do(http.MethodPut, "/v1/permits/memory/u1", `{"kind":"soft","workload":"shop/web"}`)
		s.wants(`"memory"`, time.Minute)
		s.wantMetrics(map[string]string{
			`connected`: "1", `alone`: "0", `paused`: "0", `pause_lost`: "0", `name_taken`: "0", `zone_members`: "12", `zone_wanting`: "7",
			`zone_state{state="partial"}`: "1", `zone_state{state="normal"}`: "0",
			`info{digest="d1",fleet="f",version="v1",zone="z1"}`:   "1",
			`permits_total{reason="fleet",result="granted"}`:       "4", // the guard fetches none of them
			`permits_total{reason="slot_taken",result="denied"}`:   "0",
			`permits_total{reason="unreachable",result="failed"}`:  "0",
			`permits_total{reason="not_reported",result="denied"}`: "0",
			`round_trip_seconds_count`:                             "1",
			`held{pool="nodefs bytes"}`:                            "0",
		})
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(s.manager.lines, "; "); got != "ready: fleet f, node n1: not connected yet; fleet f, node n1: not connected yet; fleet f, node n1: 7 of 12 in the zone want a soft stop, partial; stopping: ending" {
			t.Errorf("the service manager got: %s", got)
		}
	})
}

// Denials, failures and tokens are counted, a held pool is shown as held, and the log has each change once.
func TestServeAlone(t *testing.T) {
	serve(t, "", time.Hour, func(s *served) {
		s.etcd.set(func(f *etcdFake) {
			f.denial = &etcd.DeniedError{Code: etcd.SlotTaken, Denial: fleet.Denial{Reason: "zone z1: next permit in 9s", Left: 9 * time.Second, Slot: 10 * time.Second}, Extended: true}
		})
		s.wants(`"memory"`, time.Minute)
		s.do(http.MethodPut, "/v1/permits/memory/u1", `{"kind":"soft","workload":"shop/web"}`)
		s.wants(`"memory"`, 10*time.Second)
		m := s.metrics()
		if m[`permits_total{reason="slot_taken",result="denied"}`] == "0" || m["slots_extended_total"] == "0" || m[`held{pool="memory"}`] != "1" {
			t.Errorf("denied: %v", m)
		}
		s.etcd.set(func(f *etcdFake) { f.err = etcd.ErrUnreachable })
		s.wants(`"memory"`, 4*time.Minute)
		s.wantMetrics(map[string]string{`connected`: "0", `alone`: "1"})
		if got := s.do(http.MethodGet, "/v1/status", ""); !strings.Contains(got, `"cause":"unreachable"`) {
			t.Errorf("status: %s", got)
		}
		s.etcd.set(func(f *etcdFake) { f.err = nil })
		s.wants(`"memory"`, 4*time.Minute)
		s.wantMetrics(map[string]string{`connected`: "1", `alone`: "0"})
		for _, line := range []string{"fleet unavailable", "node is alone", "no longer alone", "fleet available again"} {
			if n := strings.Count(s.log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", line, n, s.log)
			}
		}
	})
}

// A full fleet is an alarm in the log, the status and the metrics, with the configurations of the nodes that want a stop. It
// is read and logged once, even if it is full again after a short time, and ends with an answer that shows it.
func TestServeFullFleet(t *testing.T) {
	serve(t, "", time.Hour, func(s *served) {
		const alarm = `msg="fleet is full, no soft stops: a bad rollout looks like this" configurations="d1 of version v1 on 9 nodes, d2 of version v1 on 1 node"`
		answer := func(d *etcd.DeniedError, full bool) {
			s.Helper()
			s.etcd.set(func(f *etcdFake) { f.denial = d })
			for range 100 {
				s.do(http.MethodPut, "/v1/permits/memory/u1", `{"kind":"soft","workload":"shop/web"}`)
				s.wants(`"memory"`, time.Second)
			}
			value := "0"
			if full {
				value = "1"
			}
			s.wantMetrics(map[string]string{"full": value})
			if got := s.do(http.MethodGet, "/v1/status", ""); strings.Contains(got, `"full":true,"pressured":[{"digest":"d1","version":"v1","wanting":9},`) != full {
				s.Errorf("%s: %s", d.Code, got)
			}
		}
		full := &etcd.DeniedError{Code: etcd.FleetFull, Denial: fleet.Denial{Reason: "fleet is full: 0/s"}}
		answer(&etcd.DeniedError{Code: etcd.RateZero, Denial: fleet.Denial{Reason: "zone z1 is partial: 0/s"}}, false)
		answer(full, true)
		answer(&etcd.DeniedError{Code: etcd.SlotTaken, Denial: fleet.Denial{Reason: "zone z1: next permit", Left: time.Second, Slot: time.Second}, Unsure: true}, true)
		answer(&etcd.DeniedError{Code: etcd.RateZero, Denial: fleet.Denial{Reason: "zone z1 is partial: 0/s"}}, false)
		answer(full, true)
		if got, shares := s.log.String(), read(s.etcd, func(f *etcdFake) int { return f.shares }); strings.Count(got, alarm) != 1 || shares != 1 {
			s.Errorf("the configurations were read %d times; log: %s", shares, got)
		}
		s.wants("", time.Second)
		s.wantMetrics(map[string]string{"full": "0"})
		if !slices.Contains(s.manager.lines, "fleet f, node n1: the fleet is full, no soft stops") {
			s.Errorf("the service manager got %v", s.manager.lines)
		}
		if got := s.metrics()[`permits_total{reason="fleet_full",result="denied"}`]; got == "0" || got == "" {
			s.Errorf("%q denials by a full fleet", got)
		}
		s.wants("", 10*time.Minute)
		answer(full, true)
		if got := strings.Count(s.log.String(), alarm); got != 2 {
			s.Errorf("after a while: logged %d times", got)
		}
	})
}

// A pool whose stop is permitted is not held.
func TestGrantedIsNotHeld(t *testing.T) {
	serve(t, "", time.Hour, func(s *served) {
		s.wants(`"memory"`, time.Second)
		for range 120 {
			answer := s.do(http.MethodPut, "/v1/permits/memory/u1", `{"kind":"soft","workload":"shop/web"}`)
			granted := strings.Contains(answer, `"granted"`)
			if held := s.metrics()[`held{pool="memory"}`]; (held == "0") != granted {
				t.Errorf("held is %s, answer %s", held, answer)
			}
			if granted {
				return
			}
			s.wants(`"memory"`, time.Second)
		}
		t.Error("no permit")
	})
}

// The time for which an episode was held, and for how long a node is alone, outlive a restart.
func TestServeSavesState(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, time.Hour, func(s *served) {
		s.etcd.set(func(f *etcdFake) { f.err = etcd.ErrNoSpace })
		s.wants(`"memory"`, 5*time.Minute)
	})
	saved, err := loadState(dir, 2*time.Hour)
	if err != nil || saved.AloneSince == 0 || saved.Held[policy.PoolMemory] < time.Minute || !saved.Trickle.On {
		t.Fatalf("%+v, %v", saved, err)
	}
	serve(t, dir, 2*time.Hour, func(s *served) {
		if got := s.do(http.MethodGet, "/v1/status", ""); !strings.Contains(got, `"alone_for":"5`) {
			t.Errorf("an hour later: %s", got)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, time.Hour, func(s *served) {
		if !strings.Contains(s.log.String(), "starting without the last state") {
			t.Errorf("a damaged state: %s", s.log)
		}
	})
}

// A node that changes its fleet leaves the other one's pause behind. It is no pause that was lost.
func TestServeAnotherFleet(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, time.Hour, func(s *served) {
		s.etcd.set(func(f *etcdFake) { f.paused = 3 * time.Hour })
		s.wants(`"memory"`, time.Minute)
		s.wantMetrics(map[string]string{`paused`: "1"})
	})
	path := filepath.Join(dir, stateFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for fleet, lost := range map[string]string{"f": "1", "g": "0"} { // the agent's is f
		if err := os.WriteFile(path, bytes.Replace(text, []byte(`"fleet":"f"`), []byte(`"fleet":"`+fleet+`"`), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		serve(t, dir, time.Hour, func(s *served) {
			s.wants(`"memory"`, time.Minute)
			s.wantMetrics(map[string]string{`connected`: "1", `paused`: "0", `pause_lost`: lost})
		})
	}
}

// The agent and the guard may share a directory: neither replaces the other's state. A start removes the temporary files
// that a crash left.
func TestServeSharesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	const guards = "fleet.json" // what guard/fleet/client calls its own
	const left = ".fleet-agent.json-123"
	for _, name := range []string{guards, left} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("guard"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, dir, time.Hour, func(s *served) {
		s.etcd.set(func(f *etcdFake) { f.err = etcd.ErrNoSpace })
		s.wants(`"memory"`, 5*time.Minute)
		if log := s.log.String(); strings.Contains(log, "starting without the last state") {
			t.Errorf("the agent read the guard's state: %s", log)
		}
	})
	if text, err := os.ReadFile(filepath.Join(dir, guards)); err != nil || string(text) != "guard" {
		t.Errorf("the guard's state is %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err != nil {
		t.Errorf("the agent's state: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, left)); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", left, err)
	}
}

func TestParseState(t *testing.T) {
	s := Saved{Fleet: "f", Saved: fleet.Saved{
		Held: map[policy.Pool]time.Duration{policy.PoolMemory: time.Minute, policy.PoolNodeBytes: time.Second}, AloneSince: time.Hour,
		Paused: 2 * time.Hour, Trickle: fleet.SavedTokens{On: true, First: 3 * time.Hour}, Local: fleet.SavedTokens{First: 4 * time.Hour},
	}, Soft: policy.Bucket{Burst: 3, Every: time.Hour}, Requests: map[policy.Pool]SavedRequest{policy.PoolMemory: {"u1", Request{"soft", "shop/web"}, "ID"}}}
	text, err := formatState(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseState(text, time.Hour)
	if err != nil || got.Fleet != s.Fleet || got.Held[policy.PoolMemory] != time.Minute || got.Held[policy.PoolNodeBytes] != time.Second || got.AloneSince != s.AloneSince ||
		got.Paused != s.Paused || !maps.Equal(got.Requests, s.Requests) || got.Trickle != s.Trickle || got.Local != s.Local || got.Soft != s.Soft {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
	for _, text := range []string{
		"", "[]", `{"held":{"heat":"1s"}}`, `{"held":{"memory":"-1s"}}`, `{"held":{"memory":"2h"}}`, `{"alone_since":"2h"}`,
		`{"alone_since":"-1s"}`, `{"paused_until":"-1s"}`, `{"trickle":{"first":"2000000h"}}`, `{"soft":{"every":"-1s"}}`, `{"soft":{"burst":-1}}`,
		`{"requests":{"heat":{}}}`, `{"requests":{"memory":{"sandbox":"u1","kind":"soft","workload":"w"}}}`, `{"requests":{"memory":{"sandbox":"u1","kind":"hard","workload":"w","id":"i"}}}`,
		`{"requests":{"memory":{"sandbox":"u1","kind":"soft","workload":"w","id":"` + strings.Repeat("i", 99) + `"}}}`, strings.Repeat(" ", maxStateFile) + "{}",
	} {
		if got, err := parseState([]byte(text), time.Hour); err == nil {
			t.Errorf("%.50q: %+v", text, got)
		}
	}
}

// A state that can be parsed is one that an agent can start with.
func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"held":{"memory":"1m0s"},"alone_since":"1h0m0s","trickle":{"on":true,"first":"1s"},"requests":{"memory":{"sandbox":"u1","kind":"soft","workload":"w","id":"i"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text, time.Hour)
		if err != nil {
			return
		}
		a := New(Options{Rates: fleet.DefaultRates(), Saved: s, Rand: rand.New(rand.NewPCG(1, 2)), Now: func() time.Duration { return time.Hour }})
		if got := a.Status(); time.Duration(got.AloneFor) > time.Hour {
			t.Errorf("%s: %+v", text, got)
		}
	})
}

// A pause that vanishes before its time is reported, until an operator resumes; one that ends in time is not.
func TestPauseLost(t *testing.T) {
	for name, tt := range map[string]struct {
		after   time.Duration // when the pause is gone
		resumed bool
		lost    bool
	}{
		"lost": {5 * time.Minute, false, true}, "resumed": {5 * time.Minute, true, false}, "expired": {10 * time.Minute, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Saved{}, func(n *node) {
				n.etcd.set(func(f *etcdFake) { f.paused = n.now() + 10*time.Minute })
				n.wants(policy.PoolMemory)
				n.after(tt.after)
				n.etcd.set(func(f *etcdFake) { f.paused, f.survey.Resumed = 0, tt.resumed })
				n.after(4 * time.Minute)
				if got := n.Status().PauseLost; got != tt.lost {
					t.Errorf("lost: %t", got)
				}
				n.etcd.set(func(f *etcdFake) { f.survey.Resumed = true })
				n.after(4 * time.Minute)
				if n.Status().PauseLost {
					t.Error("lost after a resume")
				}
			})
		})
	}
}

// A second machine of the same name is logged once, and is in the status and the metrics as long as it reports.
func TestNameTaken(t *testing.T) {
	serve(t, "", time.Hour, func(s *served) {
		s.wants(`"memory"`, time.Minute)
		for _, taken := range []bool{true, true, false} {
			s.etcd.set(func(f *etcdFake) { f.survey.NameTaken = taken })
			s.wants(`"memory"`, 4*time.Minute)
			if got := strings.Contains(s.do(http.MethodGet, "/v1/status", ""), `"name_taken":true`); got != taken {
				t.Errorf("the status says %t, want %t", got, taken)
			}
			s.wantMetrics(map[string]string{"name_taken": strconv.Itoa(int(bool01(taken)))})
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(s.log.String(), "another agent reports to the fleet under this node's name"); n != 1 {
			t.Errorf("logged %d times: %s", n, s.log)
		}
	})
}

// The guard's own budget decides how often a node that is alone makes a soft stop.
func TestSoftBudgetOfTheGuard(t *testing.T) {
	count := func(soft Soft) (stops int) {
		run(t, Saved{}, func(n *node) {
			n.etcd.set(func(f *etcdFake) { f.err = etcd.ErrUnreachable })
			n.SetState(State{Wants: []policy.Pool{policy.PoolMemory}, Soft: soft})
			for range 60 {
				n.after(time.Minute)
				n.Request(policy.PoolMemory, "u1", Request{Kind: "soft", Workload: "w"})
			}
			stops = n.Status().Counts.Local
		})
		return stops
	}
	fast, slow := count(Soft{1, 0}), count(Soft{Burst: 1, Every: 1200_000_000_000})
	if fast < 30 || slow < 1 || slow > 3 {
		t.Errorf("%d stops without a limit, %d with one in 20 min", fast, slow)
	}
}
