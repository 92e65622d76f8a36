package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/journal"
	"github.com/criguard/criguard/guard/node/nodetest"
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

// reloading is a running service, with its notifications to the service manager and its log.
type reloading struct {
	*Service
	base    string // the part that all configurations share
	log     *lockedText
	manager *net.UnixConn
	reload  chan func() (config.Config, error)
	file    atomic.Pointer[config.Config] // that a reload on the control socket loads
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	return newReloadingWith(t, hook.NewAccess(nil))
}

// newReloadingWith checks the hooks' programs with access.
func newReloadingWith(t *testing.T, access *hook.Access) *reloading {
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
		base: nodetest.Config(t, "runtime.endpoint = '/none'", fmt.Sprintf("history.dir = %q", t.TempDir())),
		log:  &lockedText{}, manager: manager, reload: make(chan func() (config.Config, error)),
	}
	r.Service = effectService(t, configtest.Parse(t, r.base))
	r.opt.Notifier, r.opt.Reload = notifier, r.reload
	r.opt.Load = func() (config.Config, error) { return *r.file.Load(), nil }
	r.Service.log = slog.New(slog.NewTextHandler(r.log, nil))
	r.journal = journal.New(r.Service.log)
	r.hooks = hook.NewDispatcher(r.Service.log, r.metrics.Hook)
	r.hooks.Access = access
	t.Cleanup(run(t, r.Service))
	r.told(t, "READY=1")
	return r
}

// told waits for a notification that begins with state, and returns it whole.
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

// with returns a function that loads the node's configuration plus more.
func (r *reloading) with(t *testing.T, more string) func() (config.Config, error) {
	cfg := configtest.Parse(t, r.base+more)
	return func() (config.Config, error) { return cfg, nil }
}

// The service manager is notified before a file is read, with the timestamp that Type=notify-reload requires,
// and again once the configuration is in force.
func TestReloadTellsTheServiceManager(t *testing.T) {
	r := newReloading(t)
	load := r.with(t, "mode = 'observe'\n")
	early := make(chan string, 1)
	r.reload <- func() (config.Config, error) {
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

// A rejected configuration changes nothing and gives the reason. A later good one clears it.
func TestReloadRejected(t *testing.T) {
	r := newReloading(t)
	client := control.NewClient(r.opt.Dir)
	_, bad := config.Parse("config.toml", strings.NewReader("images.high = '200%'\nmode = 'x'"))
	r.reload <- func() (config.Config, error) { return config.Config{}, bad }
	r.told(t, "RELOADING=1")
	if got := r.told(t, "READY=1"); !strings.Contains(got, "rejected: config.toml:1: images.high") {
		t.Errorf("the service manager is told %q", got)
	}
	st, err := client.Status(t.Context())
	if err != nil || !strings.Contains(st.ConfigNote, "config.toml:1: images.high") || !strings.Contains(st.ConfigNote, "config.toml:2: mode") || st.Mode != "enforce" {
		t.Errorf("status tells %q, mode %q, %v", st.ConfigNote, st.Mode, err)
	}
	if log := r.log.String(); !strings.Contains(log, "configuration rejected") || !strings.Contains(log, "must not be above 100%") {
		t.Errorf("logged\n%s", log)
	}

	r.reload <- r.with(t, "images.high = '90%'\n")
	if got := r.told(t, "READY=1"); strings.Contains(got, "rejected") {
		t.Errorf("the service manager is still told %q", got)
	}
	if st, err := client.Status(t.Context()); err != nil || st.ConfigNote != "" {
		t.Errorf("status still tells %q, %v", st.ConfigNote, err)
	}
}

// The defaults do not replace the service's file when it is missing. A drop-in may be removed, and a service that has read no
// file needs none.
func TestReloadWithoutTheFile(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'")))
	for _, c := range []struct {
		files   []string
		refused bool
	}{
		{files: nil},
		{files: []string{config.DefaultPath, "/etc/criguard/config.d/10.toml"}},
		{files: []string{"/etc/criguard/config.d/10.toml"}, refused: true},
		{files: nil, refused: true},
		{files: []string{config.DefaultPath}},
	} {
		cfg := s.opt.Config
		cfg.Files = c.files
		before := s.guard.Config().Files
		_, err := s.reload(cfg, nil, nil, true)
		if errors.Is(err, api.ErrRefused) != c.refused || c.refused && !strings.Contains(err.Error(), config.DefaultPath+": is missing") {
			t.Errorf("%q after %q: %v", c.files, before, err)
		}
		if got := s.guard.Config().Files; slices.Equal(got, c.files) == c.refused {
			t.Errorf("%q after %q: in force is that of %q", c.files, before, got)
		}
	}
}

// Each changed key is logged with its old and new value, within limits.
func TestReloadLogsEachKey(t *testing.T) {
	r := newReloading(t)
	var many strings.Builder
	const maxShown = 120 // bytes of a value that an error or a change shows
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
	r.file.Store(new(configtest.Parse(t, r.base+text.String())))
	if _, err := control.NewClient(r.opt.Dir).Command(t.Context(), api.Command{Command: api.CommandReload, Now: true}); err != nil {
		t.Fatal(err)
	}
	log := r.log.String()
	if n := strings.Count(log, "key changed"); n != journal.MaxChanges || !strings.Contains(log, `msg="more keys changed" action=reload count=1`) {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// Changes that require a restart are noted for as long as they are pending.
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

// A reload that is rejected or held changes nothing that takes effect at the next start, so that the note stays.
func TestNextStartIsNotedBesideAVerdict(t *testing.T) {
	r := newReloading(t)
	const later = "metrics.listen = '127.0.0.1:9480'\n"
	for _, step := range []struct {
		load func() (config.Config, error)
		want []string
	}{
		{r.with(t, later), []string{"takes effect at the next start: metrics.listen"}},
		{
			func() (config.Config, error) { return config.Config{}, errors.New("typo\nanother") },
			[]string{"the last reload was rejected: typo", "another", "takes effect at the next start: metrics.listen"},
		},
		{r.with(t, "eviction.hard.'memory.available' = '2Gi'\n"), []string{"takes effect at the next start: metrics.listen"}},
		{r.with(t, ""), nil},
	} {
		r.reload <- step.load
		line := r.told(t, "READY=1")
		st, err := control.NewClient(r.opt.Dir).Status(t.Context())
		if err != nil || st.ConfigNote != strings.Join(step.want, "\n") {
			t.Errorf("status notes %q, want %q, %v", st.ConfigNote, step.want, err)
		}
		for _, note := range step.want {
			if note != "another" && !strings.Contains(line, note) {
				t.Errorf("no %q in %q", note, line)
			}
		}
	}
}

// Rules apply to pods with the reload rather than from the next listing on.
func TestReloadJudgesPodsAnew(t *testing.T) {
	s, _ := newOperated(t, "")
	rules := configtest.Parse(t, "[[protect]]\nname = 'a'\n[[priority]]\nname = 'a'\nvalue = 7\n[[limit]]\nname = 'a'\nephemeral_storage = '1Gi'\n")
	for _, rules := range []config.Config{rules, config.Default()} {
		cfg := s.opt.Config
		cfg.Protects, cfg.Priorities, cfg.Limits = rules.Protects, rules.Priorities, rules.Limits
		before := s.host.Inventory(t.Context(), 0)
		_, _ = s.reload(cfg, nil, nil, false)
		inv := s.host.Inventory(t.Context(), 0)
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

// If a pod has many labels, the inventory drops those that no rule names. So a reload lists the pods again.
func TestReloadListsAgain(t *testing.T) {
	s, _ := newOperated(t, "")
	for len(s.kick) > 0 {
		<-s.kick
	}
	_, _ = s.reload(s.opt.Config, nil, nil, false)
	if len(s.kick) != 1 {
		t.Error("no listing was asked for")
	}
}

// A load that hangs does not block the loop.
func TestReloadThatHangs(t *testing.T) {
	r := newReloading(t)
	release := make(chan struct{})
	r.reload <- func() (config.Config, error) { <-release; return config.Config{}, errors.New("gave up") }
	r.told(t, "RELOADING=1")
	if _, err := control.NewClient(r.opt.Dir).Status(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
	if got := r.told(t, "READY=1"); !strings.Contains(got, "gave up") {
		t.Errorf("told %q", got)
	}
}

// While a reload checks a hook's program, the loop goes on.
func TestReloadChecksHooksBesideTheLoop(t *testing.T) {
	looks, release := make(chan struct{}), make(chan struct{})
	access := hook.NewAccess(func(string) error { close(looks); <-release; return nil })
	access.Timeout = time.Hour
	r := newReloadingWith(t, access)
	r.reload <- r.with(t, "[[hook]]\non = 'stop'\ncommand = ['/slow/one']\n")
	r.told(t, "RELOADING=1")
	<-looks
	if _, err := control.NewClient(r.opt.Dir).Status(t.Context()); err != nil {
		t.Errorf("while the program is checked: %v", err)
	}
	close(release)
	if got := r.told(t, "READY=1"); strings.Contains(got, "warning") {
		t.Errorf("told %q", got)
	}
}

// A hook's program on a dead mount does not block a reload. The verdict names the program that
// does not answer, and the configuration is in force.
func TestReloadHookDoesNotAnswer(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	r := newReloadingWith(t, hook.NewAccess(func(path string) error {
		if strings.HasPrefix(path, "/dead/") {
			<-release
		}
		return os.ErrNotExist
	}))
	const hooks = "mode = 'observe'\n[[hook]]\non = 'stop'\ncommand = ['/dead/one']\n[[hook]]\non = 'alarm'\ncommand = ['/dead/two']\n[[hook]]\non = 'alarm'\ncommand = ['/gone']\n"
	for range 2 {
		r.reload <- r.with(t, hooks)
		r.told(t, "RELOADING=1")
		const want = "warning: hook program /dead/one does not answer; warning: hook program /dead/two does not answer"
		if got := r.told(t, "READY=1"); !strings.Contains(got, "observe mode") || !strings.Contains(got, want) {
			t.Errorf("told %q", got)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "command=/dead/one") || !strings.Contains(log, "command=/gone") {
		t.Errorf("logged\n%s", log)
	}
	r.reload <- r.with(t, "")
	if got := r.told(t, "READY=1"); strings.Contains(got, "warning") {
		t.Errorf("without hooks told %q", got)
	}
}

// A reload by an operator is recorded, also one from outside the service's PID namespace, which the kernel
// reports as PID 0.
func TestReloadIsRecorded(t *testing.T) {
	r := newReloading(t)
	load := r.with(t, "")
	r.reload <- load
	r.told(t, "READY=1")
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	r.file.Store(&cfg)
	if _, err := r.reloadFor(t.Context(), false, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	var by []*api.Peer
	for _, p := range passesOf(t, r.Service) {
		if p.Command != nil && p.Command.Command == api.CommandReload {
			by = append(by, p.Command.By)
		}
	}
	if len(by) != 1 || by[0] == nil || *by[0] != (api.Peer{}) {
		t.Errorf("recorded %v", by)
	}
}

// What is wrong with a file is logged at the start and at a reload, whose answer has it as well.
func TestFileNotesAreLogged(t *testing.T) {
	r := newReloading(t)
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := errors.Join(os.WriteFile(path, []byte(r.base), 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	const message = "configuration file needs attention"
	note := path + " can be changed by every user, and the service runs as root"
	r.reload <- func() (config.Config, error) { return cfg, nil }
	r.told(t, "READY=1")
	if log := r.log.String(); strings.Count(log, message) != 1 || !strings.Contains(log, note) {
		t.Errorf("at a reload: %s", log)
	}
	r.file.Store(&cfg)
	if a, err := r.reloadFor(t.Context(), false, api.Peer{}); err != nil || !strings.HasSuffix(a.Message, "; "+note) {
		t.Errorf("answer %q, %v", a.Message, err)
	}
	var log lockedText
	s := effectService(t, cfg)
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	t.Cleanup(run(t, s))
	nodetest.Await(t, "the warning at the start", func() bool { return strings.Contains(log.String(), message) && strings.Contains(log.String(), note) })
}
