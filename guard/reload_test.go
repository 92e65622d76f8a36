package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/systemd"
)

// lockedText is a log that several goroutines write to.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// reloading is a service that runs, what it tells its service manager, and its log.
type reloading struct {
	*Service
	base    string // what every configuration has
	log     *lockedText
	manager *net.UnixConn
	reload  chan func() (Config, error)
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	dir, err := os.MkdirTemp("", "criguard") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	notifier, err := systemd.NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	r := &reloading{
		base: effectNode(t, "runtime.endpoint = '/none'", fmt.Sprintf("history.dir = %q", t.TempDir())),
		log:  &lockedText{}, manager: manager, reload: make(chan func() (Config, error)),
	}
	r.Service = effectService(t, goodConfig(t, r.base))
	r.opt.Notifier, r.opt.Reload = notifier, r.reload
	r.Service.log = slog.New(slog.NewTextHandler(r.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r.told(t, "READY=1")
	return r
}

// told waits for a notification that begins with a state, and gives it whole.
func (r *reloading) told(t *testing.T, state string) string {
	t.Helper()
	b := make([]byte, 4096)
	for {
		if err := r.manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := r.manager.Read(b)
		if err != nil {
			t.Fatalf("wait for %s: %v", state, err)
		}
		if text := string(b[:n]); strings.HasPrefix(text, state) {
			return text
		}
	}
}

// with loads the node's configuration and more.
func (r *reloading) with(t *testing.T, more string) func() (Config, error) {
	cfg := goodConfig(t, r.base+more)
	return func() (Config, error) { return cfg, nil }
}

// The service manager hears of the beginning before a file is read, with the time that
// Type=notify-reload asks for, and of the end once the configuration is in force.
func TestReloadTellsTheServiceManager(t *testing.T) {
	r := newReloading(t)
	load := r.with(t, "mode = 'observe'\n")
	early := make(chan string, 1)
	r.reload <- func() (Config, error) {
		early <- r.told(t, "RELOADING=1")
		return load()
	}
	_, usec, ok := strings.Cut(<-early, "\nMONOTONIC_USEC=")
	if n, err := strconv.ParseInt(strings.TrimSpace(usec), 10, 64); !ok || err != nil || n <= 0 {
		t.Errorf("MONOTONIC_USEC is %q", usec)
	}
	if got := r.told(t, "READY=1"); !strings.Contains(got, "STATUS=") || !strings.Contains(got, "observe mode") {
		t.Errorf("the end is told as %q", got)
	}
}

// A refused one leaves all as it was, and says why; what follows mends it.
func TestReloadRefused(t *testing.T) {
	r := newReloading(t)
	client := NewClient(r.opt.RunDir)
	_, bad := ParseConfig("config.toml", strings.NewReader("images.high = '200%'\nmode = 'x'"))
	r.reload <- func() (Config, error) { return Config{}, bad }
	r.told(t, "RELOADING=1")
	if got := r.told(t, "READY=1"); !strings.Contains(got, "refused: config.toml:1: images.high") {
		t.Errorf("the service manager is told %q", got)
	}
	st, err := client.Status(t.Context())
	if err != nil || !strings.Contains(st.ConfigNote, "config.toml:1: images.high") || !strings.Contains(st.ConfigNote, "config.toml:2: mode") || st.Mode != "enforce" {
		t.Errorf("status tells %q, mode %q, %v", st.ConfigNote, st.Mode, err)
	}
	if log := r.log.String(); !strings.Contains(log, "configuration refused") || !strings.Contains(log, "must not be above 100%") {
		t.Errorf("logged\n%s", log)
	}

	r.reload <- r.with(t, "images.high = '90%'\n")
	if got := r.told(t, "READY=1"); strings.Contains(got, "refused") {
		t.Errorf("the service manager is still told %q", got)
	}
	if st, err := client.Status(t.Context()); err != nil || st.ConfigNote != "" {
		t.Errorf("status still tells %q, %v", st.ConfigNote, err)
	}
}

// Each key that changed is logged with what it was and what it is, within bounds.
func TestReloadLogsEachKey(t *testing.T) {
	r := newReloading(t)
	var many strings.Builder
	for i := range 3 * maxShown {
		fmt.Fprintf(&many, "'a%d', ", i)
	}
	r.reload <- r.with(t, "images.high = '90%'\nimages.keep = ["+many.String()+"]\n[eviction.soft]\n'memory.available' = '1Gi'\n"+
		"[eviction.soft_grace_period]\n'memory.available' = '1m'\n[[priority]]\nname = 'a'\nvalue = -1\n")
	r.told(t, "READY=1")
	log := r.log.String()
	for _, want := range []string{
		`key=images.high old="\"85%\"" new="\"90%\""`,
		`key="eviction.soft.\"memory.available\"" old=unset new="\"1Gi\""`,
		`key=priority old=[] new="[{name = \"a\", value = -1}]"`,
		`key=images.keep old=[] new="[\"a0\", `,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "key=images.keep") && len(line) > 5*maxShown {
			t.Errorf("%d bytes for one key", len(line))
		}
	}
}

func TestReloadLogsSoManyKeys(t *testing.T) {
	r := newReloading(t)
	var text strings.Builder
	for _, s := range []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available", "meminfo.available", "swap.available"} {
		fmt.Fprintf(&text, "eviction.hard.%q = '3%%'\neviction.soft.%q = '4%%'\neviction.soft_grace_period.%q = '1m'\neviction.minimum_reclaim.%q = '1%%'\n", s, s, s, s)
	}
	text.WriteString("containers.max = 9\n")
	r.reload <- r.with(t, text.String())
	r.told(t, "READY=1")
	log := r.log.String()
	if n := strings.Count(log, "key changed"); n != maxLoggedChanges || !strings.Contains(log, `msg="more keys changed" action=reload count=1`) {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// What waits for the next start is told for as long as it waits.
func TestReloadTellsWhatWaits(t *testing.T) {
	r := newReloading(t)
	for _, step := range []struct{ more, note string }{
		{"metrics.listen = '127.0.0.1:9480'\n", "takes effect at the next start: metrics.listen"},
		{"metrics.listen = '127.0.0.1:9480'\nmode = 'observe'\n", "takes effect at the next start: metrics.listen"},
		{"mode = 'observe'\n", ""},
	} {
		r.reload <- r.with(t, step.more)
		got := r.told(t, "READY=1")
		if step.note == "" && strings.Contains(got, "next start") || !strings.Contains(got, step.note) {
			t.Errorf("after %q the service manager is told %q", step.more, got)
		}
	}
}

// What rules say of a pod is in force with the configuration, not from the next listing on.
func TestReloadJudgesPodsAnew(t *testing.T) {
	s, _ := newOperated(t, "")
	rules := goodConfig(t, "[[protect]]\nname = 'a'\n[[priority]]\nname = 'a'\nvalue = 7\n[[limit]]\nname = 'a'\nephemeral_storage = '1Gi'\n")
	for _, rules := range []Config{rules, DefaultConfig()} {
		cfg := s.opt.Config
		cfg.Protects, cfg.Priorities, cfg.Limits = rules.Protects, rules.Priorities, rules.Limits
		before := s.node.Inventory(t.Context(), false)
		s.reload(cfg, nil)
		inv := s.node.Inventory(t.Context(), false)
		if inv.Err != nil || inv.At != before.At || len(inv.Pods) != len(before.Pods) {
			t.Fatalf("%d pods listed at %s, %v; were %d at %s", len(inv.Pods), inv.At, inv.Err, len(before.Pods), before.At)
		}
		for _, p := range inv.Pods {
			if p.Namespace != "d" {
				continue
			}
			if ruled := len(rules.Protects) > 0; (p.Protection != "") != ruled || (p.Priority == 7) != ruled || (p.StorageLimit > 0) != ruled {
				t.Errorf("with %d rules: protection %q, priority %d, limit %d", len(rules.Protects), p.Protection, p.Priority, p.StorageLimit)
			}
		}
	}
}

// A load that takes for ever keeps the loop from nothing.
func TestReloadThatHangs(t *testing.T) {
	r := newReloading(t)
	release := make(chan struct{})
	r.reload <- func() (Config, error) { <-release; return Config{}, errors.New("gave up") }
	r.told(t, "RELOADING=1")
	if _, err := NewClient(r.opt.RunDir).Status(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
	if got := r.told(t, "READY=1"); !strings.Contains(got, "gave up") {
		t.Errorf("told %q", got)
	}
}
