package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/lastgood/lastgoodtest"
	"github.com/criguard/criguard/guard/metrics/metricstest"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// ranBefore makes a run directory look as if the service had run with this configuration.
func ranBefore(t *testing.T, dir rundir.Dir, cfg config.Config) {
	t.Helper()
	b, err := json.Marshal(cfg.Hard())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.Path(hold.FileName), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// hardInForce returns the hard threshold of memory.available in force, or "".
func hardInForce(t *testing.T, c *control.Client) string {
	t.Helper()
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range st.Signals {
		for _, th := range s.Thresholds {
			if s.Signal == policy.MemoryAvailable && th.Kind == "hard" {
				return th.Value
			}
		}
	}
	return ""
}

// alarms returns the alarms in the status.
func alarms(t *testing.T, c *control.Client) string {
	t.Helper()
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(st.Alarms, "\n")
}

// holding is a running service on a node with 1.5 MiB available, of which 1 MiB is the threshold in force.
func holding(t *testing.T) (r *reloading, client *control.Client, use func(memory string)) {
	t.Helper()
	r = newReloading(t)
	use = func(memory string) {
		r.file.Store(new(configtest.Parse(t, r.base+"[eviction.hard]\n'memory.available' = '"+memory+"'\n")))
	}
	client = control.NewClient(r.opt.Dir)
	use("1Mi")
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || len(a.MetNow) > 0 {
		t.Fatalf("a lower threshold is held: %+v, %v", a, err)
	}
	return r, client, use
}

// A reload that meets a hard threshold at once is held with an alarm, and the old configuration stays in force.
// A second reload of the same puts it in force.
func TestReloadIsHeld(t *testing.T) {
	r, client, use := holding(t)
	use("2Gi")
	a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload})
	const sentence = "hard memory.available is met NOW, 1.5Mi < 2Gi: a reload would stop pods"
	if err != nil || len(a.MetNow) == 0 || a.MetNow[0].Signal != policy.MemoryAvailable || !strings.Contains(a.Message, sentence) || time.Until(a.Until) < hold.Time/2 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if got := hardInForce(t, client); got != "1Mi" {
		t.Errorf("in force is %s", got)
	}
	if got := alarms(t, client); !strings.Contains(got, sentence) || !strings.Contains(got, "reload --now") {
		t.Errorf("alarms %q", got)
	}
	if log := r.log.String(); !strings.Contains(log, "configuration held") || !strings.Contains(log, sentence) || !strings.Contains(log, "event=alarm") {
		t.Errorf("logged\n%s", log)
	}
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || len(a.MetNow) > 0 || !strings.Contains(a.Message, "eviction.hard") {
		t.Errorf("second reload: %+v, %v", a, err)
	}
	if got := hardInForce(t, client); got != "2Gi" || strings.Contains(alarms(t, client), "held") {
		t.Errorf("in force is %s, with the alarms %q", got, alarms(t, client))
	}
}

// The verdict names a key once: as in force, or as in force from the next start on.
func TestVerdictNamesWhatWaits(t *testing.T) {
	r, client, _ := holding(t)
	const waits = "takes effect at the next start: metrics.listen"
	for _, c := range []struct{ more, want string }{
		{"", "reloaded; " + waits}, {"images.high = '90%'\n", "reloaded: images.high; " + waits},
	} {
		r.file.Store(new(configtest.Parse(t, r.base+"metrics.listen = '127.0.0.1:9480'\n"+c.more+"[eviction.hard]\n'memory.available' = '1Mi'\n")))
		if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || a.Message != c.want {
			t.Errorf("%q, %v; want %q", a.Message, err, c.want)
		}
	}
}

// Neither --now nor a threshold that lowers the one in force waits, and a correction replaces what is held.
func TestReloadIsNotHeld(t *testing.T) {
	_, client, use := holding(t)
	use("2Gi")
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload, Now: true}); err != nil || len(a.MetNow) > 0 {
		t.Errorf("now: %+v, %v", a, err)
	}
	use("1Gi")
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || len(a.MetNow) > 0 {
		t.Errorf("lower: %+v, %v", a, err)
	}
	use("3Gi")
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || len(a.MetNow) == 0 {
		t.Errorf("higher: %+v, %v", a, err)
	}
	use("3Mi")
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || len(a.MetNow) > 0 {
		t.Errorf("corrected: %+v, %v", a, err)
	}
	if got := hardInForce(t, client); got != "3Mi" || strings.Contains(alarms(t, client), "held") {
		t.Errorf("in force is %s, with the alarms %q", got, alarms(t, client))
	}
}

// In observe mode no threshold is in force: the change to enforce mode is held, whatever was in force before, and so is a start
// in enforce mode after one in observe mode.
func TestEnforceAfterObserveIsHeld(t *testing.T) {
	r, client, use := holding(t)
	reload := func(c api.Command) api.CommandAnswer {
		t.Helper()
		c.Command = api.CommandReload
		a, err := client.Command(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	use("2Gi")
	reload(api.Command{Now: true})
	r.file.Store(new(configtest.Parse(t, "mode = 'observe'\n"+r.base+"[eviction.hard]\n'memory.available' = '2Gi'\n")))
	if a := reload(api.Command{}); len(a.MetNow) > 0 {
		t.Errorf("observe mode is held: %+v", a)
	}
	use("2Gi")
	if a := reload(api.Command{}); len(a.MetNow) == 0 {
		t.Errorf("enforce mode is not held: %+v", a)
	}

	dir := rundir.Dir(shortDir(t))
	at := func(mode string) config.Config {
		return configtest.Parse(t, "mode = '"+mode+"'\n"+nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '1Gi'"))
	}
	ranBefore(t, dir, at("enforce"))
	_, end := serveNew(t, dir, at("observe"))
	end()
	client, _ = serveNew(t, dir, at("enforce"))
	if got := hardInForce(t, client); got != "" || !strings.Contains(alarms(t, client), "held for") {
		t.Errorf("in force is %q, with the alarms %q", got, alarms(t, client))
	}
}

// serveNew serves a node that meets its threshold, in a run directory, until the end of the test or end.
func serveNew(t *testing.T, dir rundir.Dir, cfg config.Config) (client *control.Client, end func()) {
	t.Helper()
	s := newService(t, cfg, dir)
	end = run(t, s)
	t.Cleanup(end)
	client = control.NewClient(dir)
	nodetest.Await(t, "the service", func() bool { _, err := client.Status(t.Context()); return err == nil })
	return client, end
}

// The first start with a threshold that is met already is held; the other thresholds are in force meanwhile.
// A restart with thresholds that were in force does not wait.
func TestFirstStartIsHeld(t *testing.T) {
	dir := rundir.Dir(shortDir(t))
	cfg := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'", nodetest.AnyDisk))
	client, end := serveNew(t, dir, cfg)
	const alarm = "hard memory.available is met NOW, 1.5Mi < 100Mi: in force, it would stop pods"
	got := alarms(t, client)
	if hardInForce(t, client) != "" || !strings.Contains(got, alarm) || !strings.Contains(got, "the threshold is held for") || !strings.Contains(got, "the rest of the configuration is in force") {
		t.Errorf("in force is %q, with the alarms %q", hardInForce(t, client), got)
	}
	if strings.Contains(got, "a reload would") || strings.Contains(got, "the configuration is held") {
		t.Errorf("the alarm speaks of a reload: %q", got)
	}
	if st, err := client.Status(t.Context()); err != nil || len(st.Signals[policy.NodeFSAvailable].Thresholds) == 0 {
		t.Errorf("the threshold of the disk is not in force: %v", err)
	} else if p := st.LastPass; p == nil || p.AlarmKind == api.AlarmHeld && p.Wake != "start" {
		t.Errorf("the record of the alarm is %+v", p)
	}
	end()
	client, end = serveNew(t, dir, cfg)
	if !strings.Contains(alarms(t, client), "held") {
		t.Error("a restart during the hold puts the threshold in force")
	}
	end()
	ranBefore(t, dir, cfg)
	client, _ = serveNew(t, dir, cfg)
	if got := hardInForce(t, client); got != "100Mi" || strings.Contains(alarms(t, client), "held") {
		t.Errorf("after a restart with the same, %q is in force, with the alarms %q", got, alarms(t, client))
	}
}

// The sender of a signal sees no verdict, as the handler of an installer: it puts nothing in force that is held.
func TestSignalsAreHeld(t *testing.T) {
	r, client, use := holding(t)
	use("2Gi")
	for range 3 {
		r.reload <- r.opt.Load
		r.told(t, "READY=1")
		if got := hardInForce(t, client); got != "1Mi" || !strings.Contains(alarms(t, client), "held") {
			t.Errorf("in force is %s, with the alarms %q", got, alarms(t, client))
		}
	}
	for held, want := range []string{"1Mi", "2Gi"} {
		a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload})
		if got := hardInForce(t, client); err != nil || got != want || len(a.MetNow) > 0 != (held == 0) {
			t.Errorf("command %d: in force is %s, %+v, %v", held+1, got, a, err)
		}
	}
}

// A signal after a start that holds a threshold leaves it waiting, even if it is not met at that moment: the rest of what it
// reloads is in force at once. An operator's command does not wait.
func TestSignalLeavesTheHoldOfAStart(t *testing.T) {
	dir, base := rundir.Dir(shortDir(t)), nodetest.Config(t, "runtime.endpoint = '/none'", nodetest.AnyDisk)
	s := newService(t, configtest.Parse(t, base), dir)
	reload := make(chan func() (config.Config, error))
	s.opt.Reload = reload
	t.Cleanup(run(t, s))
	client := control.NewClient(dir)
	for _, high := range []string{"90%", "91%"} {
		cfg := configtest.Parse(t, base+"\nimages.high = '"+high+"'")
		s.opt.Load = func() (config.Config, error) { return cfg, nil }
		reload <- s.opt.Load
		nodetest.Await(t, "the reload", func() bool {
			high := ""
			err := s.do(t.Context(), func() { high = s.guard.Config().Images.High.String() })
			return err == nil && high == cfg.Images.High.String()
		})
		if got := alarms(t, client); hardInForce(t, client) != "" || !strings.Contains(got, "the threshold is held for") {
			t.Errorf("after a signal, in force is %q, with the alarms %q", hardInForce(t, client), got)
		}
	}
	if err := s.do(t.Context(), func() {
		if _, err := s.reload(s.waiting.Config, nil, nil, false); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if got := alarms(t, client); hardInForce(t, client) != "" || !strings.Contains(got, "the threshold is held for") {
		t.Errorf("after a signal while it is not met, in force is %q, with the alarms %q", hardInForce(t, client), got)
	}
	if _, err := os.Stat(dir.Path(hold.FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next start would not know that the threshold is new: %v", err)
	}
	if _, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil {
		t.Fatal(err)
	}
	if got := hardInForce(t, client); got != "100Mi" || strings.Contains(alarms(t, client), "held") {
		t.Errorf("after a command, in force is %q, with the alarms %q", got, alarms(t, client))
	}
}

// What is held waits for a correction that is still being checked when its time is over, but not for ever.
func TestHoldWaitsForACorrection(t *testing.T) {
	r, client, use := holding(t)
	use("2Gi")
	if _, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil {
		t.Fatal(err)
	}
	read, corrected := make(chan struct{}), configtest.Parse(t, r.base+"[eviction.hard]\n'memory.available' = '1Mi'\n")
	begun := make(chan struct{})
	r.reload <- func() (config.Config, error) {
		close(begun)
		<-read
		return corrected, nil
	}
	<-begun
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "1Mi"}, {waitForCheck - 1, "1Mi"}, {waitForCheck, "2Gi"}} {
		var until time.Duration
		if err := r.do(t.Context(), func() {
			until = r.waiting.Until
			r.endHold(until + c.after)
		}); err != nil {
			t.Fatal(err)
		}
		if got := hardInForce(t, client); got != c.want {
			t.Errorf("%s after the end, in force is %s, want %s", c.after, got, c.want)
		}
	}
	close(read)
	nodetest.Await(t, "the correction", func() bool { return hardInForce(t, client) == "1Mi" })
}

// The thresholds in force are kept with the other state that a reboot must not remove, so that it does not hold the same
// ones again.
func TestRebootIsNotHeld(t *testing.T) {
	state := t.TempDir()
	config := func(memory string) config.Config {
		return configtest.Parse(t, fmt.Sprintf("history.dir = %q\n", state)+nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '"+memory+"'"))
	}
	boot := rundir.Dir(shortDir(t))
	_, end := serveNew(t, boot, config("1Mi"))
	end()
	if _, err := os.Stat(filepath.Join(state, hold.FileName)); err != nil {
		t.Error(err)
	}
	ranBefore(t, rundir.Dir(state), config("100Mi"))
	client, _ := serveNew(t, rundir.Dir(shortDir(t)), config("100Mi")) // another boot: its run directory is empty
	if got := hardInForce(t, client); got != "100Mi" || strings.Contains(alarms(t, client), "held") {
		t.Errorf("in force is %q, with the alarms %q", got, alarms(t, client))
	}
}

// A start with a higher threshold that is met keeps the one that was in force before, also for the next start.
func TestHeldStartKeepsTheOldThreshold(t *testing.T) {
	dir := rundir.Dir(shortDir(t))
	config := func(value string) config.Config {
		return configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '"+value+"'"))
	}
	ranBefore(t, dir, config("1Mi"))
	for range 2 {
		client, end := serveNew(t, dir, config("1Gi"))
		if got := hardInForce(t, client); got != "1Mi" || !strings.Contains(alarms(t, client), "held for") {
			t.Errorf("in force is %q, with the alarms %q", got, alarms(t, client))
		}
		end()
	}
}

// A start that cannot read what was in force before does not replace it by what it has in force meanwhile.
func TestHeldStartWithoutTheOldThreshold(t *testing.T) {
	dir, state := rundir.Dir(shortDir(t)), rundir.Dir(t.TempDir())
	cfg := configtest.Parse(t, fmt.Sprintf("history.dir = %q\n", state)+nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '1Gi'"))
	ranBefore(t, state, cfg)
	lastgoodtest.Stall(t, state.Path(hold.FileName))
	client, end := serveNew(t, dir, cfg)
	if got := hardInForce(t, client); got == "1Gi" || !strings.Contains(alarms(t, client), "held for") {
		t.Errorf("in force is %q, with the alarms %q", got, alarms(t, client))
	}
	end()
	if _, err := os.Stat(dir.Path(hold.FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run directory has what the held start had in force: %v", err)
	}
	if st, err := os.Stat(state.Path(hold.FileName)); err != nil || st.Mode().IsRegular() {
		t.Errorf("the state directory has what the held start had in force: %v", err)
	}
}

// A threshold that was switched off is new when it is switched on, however it was switched off.
func TestSwitchedOnIsHeld(t *testing.T) {
	for _, off := range []string{"0%", "100%"} {
		dir := rundir.Dir(shortDir(t))
		config := func(value string) config.Config {
			return configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '"+value+"'"))
		}
		ranBefore(t, dir, config(off))
		client, end := serveNew(t, dir, config("1Gi"))
		if got := hardInForce(t, client); got != "" || !strings.Contains(alarms(t, client), "held for") {
			t.Errorf("after %s, in force is %q, with the alarms %q", off, got, alarms(t, client))
		}
		end()
	}
}

// A rejected reload does not restart the time of what is held, and says how much is left.
func TestRejectedReloadLeavesTheHold(t *testing.T) {
	r, client, use := holding(t)
	use("2Gi")
	if _, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil {
		t.Fatal(err)
	}
	err := r.do(t.Context(), func() {
		until := r.waiting.Until
		const beside = "typo\nconfiguration held: hard memory.available is met NOW, 1.5Mi < 2Gi: a reload would stop pods; the runtime does not say which; it is put in force in "
		if _, err := r.Service.reload(config.Config{}, errors.New("typo"), nil, false); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), beside) {
			t.Errorf("the reload: %v", err)
		}
		if left := r.waiting.Until - r.host.kernel.Now(); r.waiting.Until != until || !strings.Contains(r.notes.String(), "typo") || !strings.Contains(strings.Join(r.status().Alarms, "\n"), "is held for") {
			t.Errorf("held for another %s, with the note %q and the alarms %q", left, r.notes.String(), r.status().Alarms)
		}
		r.endHold(r.waiting.Until)
		metricstest.Want(t, r.metrics, map[string]string{"config_last_reload_successful": "0"})
		if !strings.Contains(r.notes.String(), "rejected: typo") {
			t.Errorf("after the hold, the note is %q: the file still has what was rejected", r.notes.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The history has the verdict of each reload: refused, held or what has changed.
func TestReloadVerdicts(t *testing.T) {
	r, client, use := holding(t)
	use("2Gi")
	load := r.opt.Load
	r.opt.Load = func() (config.Config, error) { return config.Config{}, errors.New("typo\nanother") }
	if _, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err == nil {
		t.Fatal("accepted")
	}
	r.opt.Load = load
	for _, now := range []bool{false, true} {
		if _, err := client.Command(t.Context(), api.Command{Command: api.CommandReload, Now: now}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, p := range passesOf(t, r.Service) {
		if p.Command != nil {
			got = append(got, p.Command.Verdict)
		}
	}
	if want := []string{"refused: typo", "held", `reloaded: eviction.hard."memory.available"`}; !slices.Equal(got[len(got)-3:], want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
}

// A reload is checked on the node that the service guards until it is started again, and a failed check is logged.
func TestReloadIsCheckedOnTheGuardedNode(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '1Mi'")))
	log := &lockedText{}
	s.log = slog.New(slog.NewTextHandler(log, nil))
	cfg := configtest.Parse(t, "[eviction.hard]\n'memory.available' = '2Gi'\n")
	cfg.Node.Proc, cfg.Node.Sys = t.TempDir(), t.TempDir()
	if met := s.metAtOnce(t.Context(), cfg, lookAtReload); len(met) == 0 || log.String() != "" {
		t.Errorf("met %+v, logged %s", met, log)
	}
	s.opt.Config.Node = cfg.Node
	met := s.metAtOnce(t.Context(), cfg, lookAtReload)
	if len(met) != 1 || !strings.Contains(met[0].Unknown, cfg.Node.Sys) || strings.Count(log.String(), "new thresholds not checked") != 1 {
		t.Errorf("met %+v, logged %s", met, log)
	}
}

// A reload with a threshold that cannot be checked is held as if it were met. A start is not: without a runtime, it would
// be held for each one of the runtime's filesystems.
func TestUncheckedReloadIsHeld(t *testing.T) {
	_, client, use := holding(t) // without a runtime
	const value, what = "1Mi'\n'imagefs.available' = '99%", "hard imagefs.available = 99% was not checked (the runtime has not reported its filesystem yet): a reload may stop pods"
	use(value)
	a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload})
	if err != nil || len(a.MetNow) != 1 || a.MetNow[0].Unknown == "" || !strings.HasPrefix(a.Message, what+"; the configuration is held for 30s") || time.Until(a.Until) < hold.Time/2 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if got := alarms(t, client); !strings.Contains(got, what) {
		t.Errorf("alarms %q", got)
	}
	if a, err := client.Command(t.Context(), api.Command{Command: api.CommandReload}); err != nil || len(a.MetNow) > 0 || !strings.Contains(a.Message, "imagefs.available") {
		t.Errorf("second reload: %+v, %v", a, err)
	}

	cfg := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '"+value+"'"))
	client, _ = serveNew(t, rundir.Dir(shortDir(t)), cfg)
	if got := alarms(t, client); got != "" {
		t.Errorf("after a start, alarms %q", got)
	}
}

// A start with thresholds that are not met does not wait, and the next start knows them.
func TestStartIsNotHeld(t *testing.T) {
	dir := rundir.Dir(shortDir(t))
	cfg := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '1Mi'"))
	client, _ := serveNew(t, dir, cfg)
	if got := hardInForce(t, client); got != "1Mi" {
		t.Errorf("in force is %q", got)
	}
	nodetest.Await(t, "the file", func() bool {
		b, _ := os.ReadFile(dir.Path(hold.FileName))
		return strings.Contains(string(b), `"memory.available":"1Mi"`)
	})
}

// A stall is known after a window, so MetNow waits for one, unless it may not.
func TestMetNowAwaitsStalls(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'", "eviction.stall_window = '500ms'", "eviction.stall_floor = '100%'",
		"eviction.hard.'memory.stall' = '80%'", "eviction.hard.'memory.available' = '0%'", nodetest.AnyDisk))
	l, err := OpenLook(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nodetest.Write(t, cfg.Node.Proc, map[string]string{"pressure/memory": nodetest.Stall(int(time.Minute / time.Microsecond))})
	ended, end := context.WithCancel(t.Context())
	end()
	if met := l.MetNow(ended); len(met) > 0 {
		t.Errorf("before a window: %v", met)
	}
	if err := l.unread(policy.MemoryStall); !errors.Is(err, node.ErrNotYet) {
		t.Errorf("before a window, it is unread because of %v", err)
	}
	if met := l.MetNow(t.Context()); len(met) != 1 || !strings.HasPrefix(met[0].String(), "hard memory.stall is met NOW, 0.0% < 80.0%: a reload would stop pods") {
		t.Errorf("after a window: %v", met)
	}
	for s, want := range map[policy.Signal]error{policy.MemoryStall: nil, policy.MemoryAvailable: nil, policy.ImageFSAvailable: disk.ErrNoPath} {
		if err := l.unread(s); !errors.Is(err, want) {
			t.Errorf("%s is unread because of %v, want %v", s, err, want)
		}
	}
}

// A look at new thresholds waits for no window because of a stall's threshold that has been in force.
func TestLookWaitsForNewStallsOnly(t *testing.T) {
	const memory, stall = "eviction.hard.'memory.available' = '1Mi'\n", "eviction.hard.'memory.stall' = '80%'\n"
	cfg := configtest.Parse(t, nodetest.Config(t, memory, stall, "eviction.soft.'memory.stall' = '90%'", "eviction.soft_grace_period.'memory.stall' = '1m'"))
	for before, want := range map[string]bool{stall: false, memory: true, "eviction.hard.'memory.stall' = '70%'": true} {
		known := configtest.Parse(t, nodetest.Config(t, before))
		looks := cfg.WithoutStalls(known.Hard())
		if got := looks.Hard().HaveStall(); got != want {
			t.Errorf("after %s: waits %t", before, got)
		}
		if lost := len(cfg.Eviction.Thresholds) - len(looks.Eviction.Thresholds); lost > 1 || (lost == 1) == want {
			t.Errorf("after %s: %d thresholds fewer", before, lost)
		}
	}
}

// The finding names the pod that would be stopped first. Observe mode finds nothing.
func TestMetNowNamesTheFirst(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Name: "job4", Namespace: "kube-system", UID: "u1"})
	for mode, want := range map[string]string{"enforce": "stop no pod (outside pods)", "observe": ""} {
		cfg := configtest.Parse(t, "mode = '"+mode+"'\n"+nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'"))
		l, err := OpenLook(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		met := l.MetNow(t.Context())
		l.Close()
		if want == "" && len(met) > 0 || want != "" && (len(met) == 0 || !strings.Contains(met[0].String(), want)) {
			t.Errorf("%s: %v, want %q", mode, met, want)
		}
	}
	for want, m := range map[string]api.MetNow{
		"hard memory.available is met NOW, 15361Mi < 15362Mi: a reload would stop ci/job4 first":      {Signal: policy.MemoryAvailable, Amount: 15<<30 + 2<<20, Available: 15<<30 + 1<<20, First: "ci/job4"},
		"hard memory.stall is met NOW, 79.9999% < 80%: a reload would stop ci/job4 first":             {Signal: policy.MemoryStall, Amount: 800_000, Available: 799_999, First: "ci/job4"},
		"a reload would stop ci/job4 first":                                                           {Signal: policy.MemoryAvailable, First: "ci/job4"},
		"a reload would remove what it may, then stop ci/job4 first":                                  {Signal: policy.NodeFSAvailable, First: "ci/job4"},
		"a reload would remove what it may, then stop the pod that uses most, which is not known yet": {Signal: policy.NodeFSAvailable, Held: api.HeldUnknown},
		"a reload would act at once, but stop no pod (usage unknown)":                                 {Signal: policy.MemoryAvailable, Held: api.HeldUnknown},
	} {
		if got := m.String(); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Of two reloads at once, the second does not put in force what the first holds: its author has not seen the verdict. This holds
// for signals and for the control socket. Neither does it prolong the hold.
func TestTwoReloadsAtOnceAreHeld(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\n[eviction.hard]\n'memory.available' = '1Mi'")))
	cfg := s.opt.Config
	cfg.Eviction.Thresholds = configtest.Parse(t, "[eviction.hard]\n'memory.available' = '2Gi'\n").Eviction.Thresholds
	load := func() (config.Config, error) { return cfg, nil }
	s.opt.Load = load
	signals := make(chan func() (config.Config, error), 3) // each waits until it is taken
	s.opt.Reload = signals
	var wg sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	defer wg.Wait()
	defer end()
	var until time.Duration // end of the hold
	verdicts := func(n int) (held []bool) {
		for range n {
			call := <-s.calls
			call()
			held = append(held, s.waiting != nil)
			if w := s.waiting; w != nil && until != 0 && w.Until != until {
				t.Errorf("held until %s and then until %s", until, w.Until)
			} else if w != nil {
				until = w.Until
			}
		}
		return held
	}
	asked := s.host.kernel.Now()
	s.callsOrReload(ctx, &wg)
	signals <- load
	call := <-s.calls
	// The third comes before the verdict on the first, too. It reads no other files than the second, which waits.
	for range 2 {
		signals <- load
	}
	for len(signals) > 0 {
		runtime.Gosched()
	}
	call()
	until = s.waiting.Until
	if got := verdicts(1); !got[0] {
		t.Error("the second signal is not held")
	}
	for _, c := range []struct {
		asked time.Duration
		held  bool
	}{{asked, true}, {asked + time.Hour, false}} { // before the verdict, and after it
		answer := make(chan reloadAnswer, 1)
		s.reloads <- reloadRequest{load: load, asked: c.asked, by: &api.Peer{}, answer: answer}
		if got := verdicts(1); got[0] != c.held || (len((<-answer).MetNow) > 0) != c.held {
			t.Errorf("a command that was asked for %s later: held %t", c.asked-asked, got[0])
		}
	}
}
