package guard

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/journal"
	"github.com/criguard/criguard/guard/metrics/metricstest"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// openBreaker makes three stops for memory that gave nothing back.
func openBreaker(r *policy.Restraint, now time.Duration) {
	for i := range 3 {
		sandbox := fmt.Sprint(i)
		r.Begin(policy.Stop{Sandbox: sandbox, Signal: policy.MemoryAvailable, Expected: 1 << 30, Need: 1 << 30}, now)
		r.End(sandbox, 0)
		r.Judge(policy.PoolMemory, func(policy.Signal) policy.Amount { return policy.Amount{} }, policy.Known(8<<30), now)
	}
}

// breakerTrace returns a service with an open breaker on the node of a trace, and a function that moves the
// node to a line: what is available and what the one pod uses.
func breakerTrace(t *testing.T) (*Service, func(at, available, used string)) {
	t.Helper()
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	n := simulate.NewNode(s.opt.Config)
	line := func(at, available, used string) {
		t.Helper()
		l, err := trace.NewReader(strings.NewReader(`{"at":"` + at + `","signals":{"memory.available":{"available":"` + available + `","capacity":"16Gi"}},"pods":[{"name":"d/a","memory_usage":"` + used + `"}]}`)).Next()
		if err != nil {
			t.Fatal(err)
		}
		n.Advance(l)
	}
	line("0s", "1Mi", "8Gi")
	s.guard = eviction.New(s.opt.Config, n, n, n, n, nil, policy.NewRestraint(s.host.bootID))
	openBreaker(s.guard.Enforced(), n.Now())
	return s, line
}

// A breaker that closes while no pod is being stopped is still closed after a restart.
func TestServiceSavesAClosedBreaker(t *testing.T) {
	s, line := breakerTrace(t)
	s.saveBudget()
	breakers := func() []policy.Pool {
		r := s.loadBudget()
		r.Configure(s.opt.Config.Budget.Policy(), s.opt.Config.Backoff.Policy())
		return r.Status(s.host.kernel.Now()).Breakers
	}
	if got := breakers(); !slices.Contains(got, policy.PoolMemory) {
		t.Fatalf("an open breaker is not saved: %v", got)
	}
	line("1s", "1Mi", "10Gi") // the pods have grown by the need
	p := s.guard.Pass(t.Context(), "test")
	if s.after(&p); p.Stop != nil || p.Held != api.HeldBudget || len(breakers()) > 0 {
		t.Errorf("stopped %+v, held by %q, open after a restart: %v", p.Stop, p.Held, breakers())
	}
}

// With the highest hourly cap and the longest names of Kubernetes, a restart does not refill the budget.
func TestServiceSavesTheLargestBudget(t *testing.T) {
	s, _ := breakerTrace(t)
	c := s.opt.Config.Budget.Policy()
	c.PerHour = 1000
	c.Hard = policy.Bucket{Burst: 1000, Every: time.Hour}
	c.Soft = c.Hard
	r, now := s.guard.Enforced(), s.host.kernel.Now()
	r.Configure(c, s.opt.Config.Backoff.Policy())
	for _, kind := range []policy.Kind{policy.Hard, policy.Soft} {
		for i := range c.PerHour {
			stop := policy.Stop{
				Workload: fmt.Sprintf("%063d/%0253d", i, i), Sandbox: fmt.Sprintf("%064d", i), UID: fmt.Sprintf("%036d", i), Kind: kind,
				Pool: policy.PoolNodeInodes, Signal: policy.NodeFSInodesFree, Expected: 1 << 40, Need: 1 << 40, Available: 1 << 40, Free: 1 << 40,
			}
			r.Begin(stop, now)
			r.End(stop.Sandbox, 1<<40)
		}
	}
	s.saveBudget()
	again := s.loadBudget()
	again.Configure(c, s.opt.Config.Backoff.Policy())
	if st := again.Status(now); st.Hard.Left > 0 || st.Soft.Left > 0 {
		info, _ := os.Stat(s.opt.Dir.Path(budgetFile))
		t.Errorf("%d hard and %d soft stops are left, saved in %d bytes", st.Hard.Left, st.Soft.Left, info.Size())
	}
}

// The sample of a pass is there after a restart.
func TestServiceSavesSamples(t *testing.T) {
	s, again := newOperated(t, "")
	p := s.guard.Pass(t.Context(), "test")
	s.after(&p)
	next := again()
	next.loadSamples()
	if age, ok := next.guard.Samples().Age(time.Duration(p.At + p.Took)); !ok || age < 0 || age > time.Duration(p.Took) {
		t.Errorf("a sample: %t, %s before the end of the pass, which took %s", ok, age, time.Duration(p.Took))
	}
}

// A service starts without state that it cannot read, and logs why. The first service has none to miss.
func TestServiceWithoutReadableState(t *testing.T) {
	for name, c := range map[string]struct {
		create func(path string) error
		want   string
	}{
		"missing":   {func(string) error { return nil }, ""},
		"damaged":   {func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, "unexpected end of JSON input"},
		"too large": {func(path string) error { return os.WriteFile(path, make([]byte, 8<<20), 0o600) }, "too large"},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newOperated(t, "")
			for _, file := range []string{budgetFile, samplesFile, ordersFile} {
				if err := c.create(s.opt.Dir.Path(file)); err != nil {
					t.Fatal(err)
				}
			}
			var text strings.Builder
			s.log = slog.New(slog.NewTextHandler(&text, nil))
			if s.resumeOrders(); s.guard.Orders.String() != "none" {
				t.Errorf("orders: %s", s.guard.Orders)
			}
			if r := s.loadBudget(); r == nil || len(r.Status(s.host.kernel.Now()).Breakers) > 0 {
				t.Errorf("budget: %+v", r)
			}
			if s.loadSamples(); !reflect.DeepEqual(*s.guard.Samples(), policy.Samples{}) {
				t.Errorf("samples: %+v", s.guard.Samples())
			}
			want := 0
			if c.want != "" {
				want = 1
			}
			for _, message := range []string{"orders of the last run not readable", "stop budget of the last run not readable", "samples of the last run not readable"} {
				if strings.Count(text.String(), message) != want || strings.Count(text.String(), c.want) < 3*want {
					t.Errorf("logged %q, want %d times %q: %q", text.String(), want, message, c.want)
				}
			}
		})
	}
}

// In observe mode, what becomes of a real stop that began before is saved as well: the next run must not take it over.
func TestObserveModeSavesRealStops(t *testing.T) {
	s, _ := breakerTrace(t)
	s.guard.Enforced().Begin(policy.Stop{Workload: "d/a", Sandbox: "a", Pool: policy.PoolMemory}, s.host.kernel.Now())
	s.saveBudget()
	observe := *s.guard.Config()
	observe.Mode = config.ModeObserve
	s.guard.SetConfig(observe)
	s.guard.Enforced().End("a", 1)
	s.saveBudget()
	if left := s.loadBudget().Unfinished(policy.PoolMemory); left != nil {
		t.Errorf("unfinished: %+v", left)
	}
}

// An alarm lasts while the breaker is open and a threshold is met, even over a restart.
func TestStatusShowsAnOpenBreaker(t *testing.T) {
	s, line := breakerTrace(t)
	g := s.guard
	if p := g.Pass(t.Context(), "test"); p.Held != api.HeldBreaker {
		t.Fatalf("held by %q", p.Held)
	}
	for _, at := range []string{"1s", "30s"} {
		if got := status(g, s.host).Alarms; len(got) != 1 || !strings.HasPrefix(got[0], "memory: breaker open: ") {
			t.Errorf("before %s: alarms %q", at, got)
		}
		line(at, "1Mi", "8Gi")
		g.Pass(t.Context(), "test")
	}
	line("31s", "8Gi", "8Gi")
	g.Pass(t.Context(), "test")
	if got := status(g, s.host).Alarms; len(got) != 0 {
		t.Errorf("alarms %q without pressure", got)
	}
}

// The status names every pool for which a stop is held back.
func TestStatusNamesEveryHeldPool(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	n := simulate.NewNode(s.opt.Config)
	s.guard = eviction.New(s.opt.Config, n, n, n, n, nil, s.guard.Enforced())
	pass := func(at, memory, nodefs string) (first, also string) {
		t.Helper()
		l, err := trace.NewReader(strings.NewReader(`{"at":"` + at + `","signals":{"memory.available":{"available":"` + memory +
			`","capacity":"16Gi"},"nodefs.available":{"available":"` + nodefs + `","capacity":"100Gi"}}}`)).Next()
		if err != nil {
			t.Fatal(err)
		}
		n.Advance(l)
		p := s.guard.Pass(t.Context(), "test")
		s.after(&p)
		st := s.status()
		return st.HeldBy + ": " + st.Held, fmt.Sprint(st.AlsoHeld)
	}
	const memory, disk = "memory.available:hard: outside pods", "[{nodefs.available:hard outside pods }]"
	if first, also := pass("1s", "1Mi", "1Mi"); first != memory || also != disk {
		t.Errorf("%s, also %s", first, also)
	}
	if first, also := pass("2s", "1Mi", "50Gi"); first != memory || also != "[]" {
		t.Errorf("once the disk is relieved: %s, also %s", first, also)
	}
}

// In a new grace period, the status does not show what held the stop back before, although the grace period makes no record.
func TestStatusInANewGracePeriod(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'\n"+
		"[eviction]\nsoft_forgive = '10s'\n[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = '10s'")))
	n := simulate.NewNode(s.opt.Config)
	s.guard = eviction.New(s.opt.Config, n, n, n, n, nil, s.guard.Enforced())
	for at, v := range []struct{ available, held string }{
		{"500Mi", api.HeldGrace}, {"500Mi", api.HeldOutside}, {"9Gi", ""}, {"9Gi", ""}, {"500Mi", api.HeldGrace}, {"500Mi", api.HeldOutside},
	} {
		l, err := trace.NewReader(strings.NewReader(fmt.Sprintf(`{"at":"%ds","signals":{"memory.available":{"available":"%s","capacity":"16Gi"}}}`, 11*at, v.available))).Next()
		if err != nil {
			t.Fatal(err)
		}
		n.Advance(l)
		p := s.guard.Pass(t.Context(), "test")
		s.after(&p)
		if st := s.status(); st.Held != v.held || len(st.AlsoHeld) > 0 || strings.HasSuffix(s.statusLine(), "held back: "+v.held) != (v.held != "") {
			t.Errorf("%d: held by %q, also %v, want %q: %s", at, st.Held, st.AlsoHeld, v.held, s.statusLine())
		}
	}
	if all := passesOf(t, s); len(all) > 4 {
		t.Errorf("%d records", len(all))
	}
}

// Journal, history and metrics report a held-back stop once, however often the signal crosses its threshold
// before the condition ends, and again when the reason changes.
func TestServiceTellsOfAHoldOnce(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	var text strings.Builder
	s.journal = journal.New(slog.New(slog.NewTextHandler(&text, nil)))
	n := simulate.NewNode(s.opt.Config)
	s.guard = eviction.New(s.opt.Config, n, n, n, n, nil, s.guard.Enforced())
	pass := func(held string) {
		t.Helper()
		p := api.Pass{}
		if held != "" {
			p.ID = s.guard.NextID()
			p.Hold("nodefs.available:hard", policy.Held{By: held})
			p.Met = []api.MetView{{Threshold: p.HeldBy, Signal: policy.NodeFSAvailable}}
		}
		s.after(&p)
	}
	for range 10 {
		pass(api.HeldReclaiming)
		pass(api.HeldProtected)
		pass("")
	}
	records := passesOf(t, s)
	if len(records) != 2 || records[0].Held != api.HeldReclaiming || records[1].Held != api.HeldProtected || records[1].ID != records[0].ID+1 {
		t.Errorf("%d records", len(records))
	}
	if got := strings.Count(text.String(), "stop held back"); got != 1 {
		t.Errorf("%d lines in the journal", got)
	}
	metricstest.Want(t, s.metrics, map[string]string{`held_total{reason="protected"}`: "1"})
	l, err := trace.NewReader(strings.NewReader(`{"at":"0s","signals":{"nodefs.available":{"available":"0","capacity":"10Gi"}}}`)).Next()
	if err != nil {
		t.Fatal(err)
	}
	n.Advance(l)
	s.guard.Pass(t.Context(), "test") // the threshold is met
	pass(api.HeldReclaiming)
	if got := s.statusLine(); !strings.HasSuffix(got, "held back: protected") {
		t.Errorf("status line %q", got)
	}
	if st := s.status(); st.Held != api.HeldProtected || !strings.HasPrefix(st.HeldBy, "nodefs.available") {
		t.Errorf("status: %q held back by %q", st.HeldBy, st.Held)
	}
	pass(api.HeldOutside)
	if got := passesOf(t, s); len(got) != 3 || got[2].ID != got[1].ID+2 { // the pass that met the threshold has an ID, too
		t.Errorf("with another reason: %+v", got)
	}
	metricstest.Want(t, s.metrics, map[string]string{`held_total{reason="outside pods"}`: "1"})
}

// While one threshold is held back, another that is met again and again adds nothing to the history and the journal until a
// condition ends, and the status shows what holds a stop back now.
func TestServiceTellsOfEachHoldOnce(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	var text strings.Builder
	s.journal = journal.New(slog.New(slog.NewTextHandler(&text, nil)))
	const memory, disk = "memory.available:soft", "nodefs.available:hard"
	pass := func(changed bool, holds ...api.Hold) {
		t.Helper()
		p := api.Pass{ID: s.guard.NextID(), Changed: changed, Met: []api.MetView{{Threshold: disk, Signal: policy.NodeFSAvailable}}}
		for _, h := range holds {
			p.Hold(h.Threshold, policy.Held{By: h.Reason})
		}
		if s.after(&p); s.held.Threshold != holds[0].Threshold {
			t.Errorf("the status has %+v, want %+v", s.held, holds[0])
		}
	}
	outside := api.Hold{Threshold: disk, Reason: api.HeldOutside}
	episode := func() {
		for range 10 {
			pass(false, api.Hold{Threshold: memory, Reason: api.HeldGrace}, outside)
			pass(false, api.Hold{Threshold: memory, Reason: api.HeldBudget}, outside)
			pass(false, outside)
		}
	}
	episode()
	if all := passesOf(t, s); len(all) != 3 || all[2].ID != all[1].ID+1 {
		t.Errorf("%d records", len(all))
	}
	pass(true, outside) // MemoryPressure ends
	episode()
	if all := passesOf(t, s); len(all) != 6 {
		t.Errorf("%d records after another episode", len(all))
	}
	for want, n := range map[string]int{memory: 2, disk: 1} {
		if got := strings.Count(text.String(), "threshold="+want); got != n {
			t.Errorf("%s: %d lines in the journal, want %d", want, got, n)
		}
	}
}

// The status shows a stop for a pod's limit that is held back, for as long as it is, although no threshold is met.
func TestStatusShowsAHeldLimit(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	n := simulate.NewNode(s.opt.Config)
	s.guard = eviction.New(s.opt.Config, n, n, n, n, nil, s.guard.Enforced())
	for _, by := range []string{"limit of d/a", "admission of d/b", "memory.available:soft"} {
		for _, want := range []string{api.HeldBudget, ""} {
			p := api.Pass{ID: s.guard.NextID(), At: api.Duration(s.host.kernel.Now())}
			p.Hold(by, policy.Held{By: want, RetryAfter: time.Minute})
			s.after(&p)
			if by == "memory.available:soft" {
				want = "" // it is not met
			}
			if st := s.status(); st.Held != want || (want != "") != (st.HeldBy == by && st.NextStopIn > 0) || strings.Contains(s.statusLine(), "held back") != (want != "") {
				t.Errorf("%s: %q held by %q, next %s, line %q, want %q", by, st.HeldBy, st.Held, st.NextStopIn, s.statusLine(), want)
			}
		}
	}
}

// The service manager's status line does not keep what held a stop back once no threshold is met, although no record says so.
func TestStatusLineAfterAHold(t *testing.T) {
	path := filepath.Join(shortDir(t), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	if s.opt.Notifier, err = systemd.NewNotifier(); err != nil {
		t.Fatal(err)
	}
	n := simulate.NewNode(s.opt.Config)
	s.guard = eviction.New(s.opt.Config, n, n, n, n, nil, s.guard.Enforced())
	for at, v := range []struct{ available, want string }{
		{"1Mi", "STATUS=MemoryPressure, held back: outside pods"}, {"9Gi", "STATUS=MemoryPressure"},
	} {
		l2, err := trace.NewReader(strings.NewReader(fmt.Sprintf(`{"at":"%ds","signals":{"memory.available":{"available":"%s","capacity":"16Gi"}}}`, at, v.available))).Next()
		if err != nil {
			t.Fatal(err)
		}
		n.Advance(l2)
		p := s.guard.Pass(t.Context(), "test")
		s.after(&p)
		b := make([]byte, 4096)
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if size, err := l.Read(b); err != nil || string(b[:size]) != v.want {
			t.Errorf("after %d s: %q, %v, want %q", at, b[:size], err, v.want)
		}
	}
}

// A command is no pass: it counts as none, and it ends no hold, so the next pass does not report the hold again.
func TestCommandIsNoPass(t *testing.T) {
	s, _ := breakerTrace(t)
	var text strings.Builder
	s.journal = journal.New(slog.New(slog.NewTextHandler(&text, nil)))
	pass := func() {
		p := s.guard.Pass(t.Context(), "timer")
		s.after(&p)
	}
	pass()
	s.guard.Orders.Drain = &api.Drain{}
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandUndrain}, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	pass()
	if got := strings.Count(text.String(), "stop held back"); got != 1 {
		t.Errorf("the hold is logged %d times", got)
	}
	metricstest.Want(t, s.metrics, map[string]string{
		`passes_total{wake="timer"}`: "2", `passes_total{wake="command"}`: "0", "pass_duration_seconds_count": "2",
	})
	if all := passesOf(t, s); len(all) != 2 || all[1].Command == nil || len(all[1].Met) == 0 {
		t.Errorf("recorded %+v", all)
	}
}

// The history has an outage of the runtime, also while a stop is held back for the same reason as before.
func TestServiceRecordsAnOutage(t *testing.T) {
	s, _ := breakerTrace(t)
	for _, change := range []*api.RuntimeChange{nil, {Error: "EOF"}, nil, {Up: true}, nil} {
		p := s.guard.Pass(t.Context(), "timer")
		p.Runtime = change
		s.after(&p)
	}
	if all := passesOf(t, s); len(all) != 3 || all[1].Runtime == nil || all[1].Runtime.Up || all[2].Runtime == nil || !all[2].Runtime.Up {
		t.Errorf("recorded %+v", all)
	}
}

// The ages and remaining times of a status and a ranking are no more exact than a millisecond.
func TestStatusHasMilliseconds(t *testing.T) {
	s, _ := newOperated(t, "")
	until := api.Duration(s.host.kernel.Now() + time.Hour)
	s.guard.Orders.Pause = &api.Pause{Until: until}
	s.guard.Orders.Protect(api.Protection{Pod: "d/a", Until: until})
	st := s.status()
	for name, d := range map[string]api.Duration{
		"uptime": st.Uptime, "paused_for": st.PausedFor, "left": st.Orders.Protected[0].Left, "listed_ago": *st.Runtime.ListedAt,
		"listed_ago of a ranking": *rank(t.Context(), s.guard, s.host, policy.MemoryAvailable).ListedAt,
	} {
		if d%api.Duration(time.Millisecond) != 0 {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A held configuration is the last record of the status.
func TestHoldIsTheLastPass(t *testing.T) {
	s, _ := newOperated(t, "")
	for _, wake := range []string{"reload", "start"} {
		s.hold(hold.Held{Config: s.opt.Config, Met: []api.MetNow{{Signal: policy.MemoryAvailable}}}, wake)
		if p := s.status().LastPass; p == nil || p.AlarmKind != api.AlarmHeld || p.Wake != wake {
			t.Errorf("the last pass is %+v", p)
		}
	}
}

// passesOf returns the service's history, oldest pass first.
func passesOf(t *testing.T, s *Service) (passes []api.Pass) {
	t.Helper()
	_, err := s.history.Query(t.Context(), api.HistoryQuery{}, func(line []byte) error {
		passes = append(passes, api.Pass{})
		return json.Unmarshal(line, &passes[len(passes)-1])
	})
	if err != nil {
		t.Fatal(err)
	}
	return passes
}
