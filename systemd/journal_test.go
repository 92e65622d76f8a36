package systemd

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// record returns the next datagram as a record. The test fails if the journal would reject it.
func (r *receiver) record() record {
	r.t.Helper()
	got, err := parseRecord(r.next())
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func newJournal(t *testing.T, level slog.Leveler) (*journalHandler, *receiver) {
	t.Helper()
	r := listen(t)
	h, err := newJournalHandler(r.path, level)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h, r
}

func TestJournalRecord(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	slog.New(h).Warn("stopping pod", EventKey, "stop-begin", "pod", "default/a", "signal", "memory.available",
		"grace", 5*time.Second, "reason", "20Mi free, 100Mi asked for")
	want := record{
		{"PRIORITY", "4"},
		{"SYSLOG_IDENTIFIER", "criguard"},
		{"MESSAGE", `stopping pod pod=default/a signal=memory.available grace=5s reason="20Mi free, 100Mi asked for"`},
		{"MESSAGE_ID", EventStopBegin.MessageID()},
		{"CRIGUARD_EVENT", "stop-begin"},
		{"CRIGUARD_POD", "default/a"},
		{"CRIGUARD_SIGNAL", "memory.available"},
		{"CRIGUARD_GRACE", "5s"},
		{"CRIGUARD_REASON", "20Mi free, 100Mi asked for"},
	}
	if got := r.record(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("record\n %q\nwant\n %q", got, want)
	}
}

func TestJournalPriority(t *testing.T) {
	h, r := newJournal(t, slog.LevelDebug)
	for level, want := range map[slog.Level]string{
		slog.LevelDebug - 4: "", slog.LevelDebug: "7", slog.LevelInfo: "6", slog.LevelInfo + 2: "6", slog.LevelWarn: "4", slog.LevelError: "3", slog.LevelError + 4: "3",
	} {
		slog.New(h).Log(t.Context(), level, "x")
		if want == "" {
			r.none()
		} else if got := r.record().get("PRIORITY"); got != want {
			t.Errorf("level %v: PRIORITY=%s, want %s", level, got, want)
		}
	}
}

func TestJournalLevelMayChange(t *testing.T) {
	level := new(slog.LevelVar)
	h, r := newJournal(t, level)
	log := slog.New(h).With("a", 1)
	log.Debug("unseen")
	r.none()
	level.Set(slog.LevelDebug)
	log.Debug("seen")
	if got := r.record().get("MESSAGE"); got != "seen a=1" {
		t.Errorf("MESSAGE=%s", got)
	}
}

func TestJournalEvents(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	t.Run("typed", func(t *testing.T) {
		slog.New(h).Info("x", EventKey, EventReclaim)
		if got := r.record(); got.get("MESSAGE_ID") != EventReclaim.MessageID() || got.get("CRIGUARD_EVENT") != "reclaim" {
			t.Errorf("record %q", got)
		}
	})
	t.Run("of the logger", func(t *testing.T) {
		slog.New(h).With(EventKey, EventAlarm).Info("x")
		if got := r.record(); got.get("MESSAGE_ID") != EventAlarm.MessageID() {
			t.Errorf("record %q", got)
		}
	})
	t.Run("none", func(t *testing.T) {
		slog.New(h).Info("x")
		if got := r.record(); got.has("MESSAGE_ID") {
			t.Errorf("record %q", got)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		slog.New(h).Info("x", EventKey, "else")
		if got := r.record(); got.has("MESSAGE_ID") || got.get("CRIGUARD_EVENT") != "else" {
			t.Errorf("record %q", got)
		}
	})
	t.Run("not in a group", func(t *testing.T) {
		slog.New(h).WithGroup("g").Info("x", EventKey, EventAlarm)
		if got := r.record(); got.has("MESSAGE_ID") || got.get("CRIGUARD_G_EVENT") != "alarm" {
			t.Errorf("record %q", got)
		}
	})
}

type secret struct{}

func (secret) LogValue() slog.Value { return slog.StringValue("resolved") }

func TestJournalAttributes(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	for _, c := range []struct {
		name    string
		log     func(*slog.Logger)
		message string
		fields  map[string]string
	}{
		{"groups", func(l *slog.Logger) { l.WithGroup("a").With("x", 1).WithGroup("b").Info("m", "y", 2) },
			"m a.x=1 a.b.y=2", map[string]string{"CRIGUARD_A_X": "1", "CRIGUARD_A_B_Y": "2"}},
		{"inline group", func(l *slog.Logger) { l.Info("m", slog.Group("", "x", 1), slog.Group("g", "y", 2)) },
			"m x=1 g.y=2", map[string]string{"CRIGUARD_X": "1", "CRIGUARD_G_Y": "2"}},
		{"empty group", func(l *slog.Logger) { l.WithGroup("").Info("m", slog.Group("g")) }, "m", nil},
		{"empty attribute", func(l *slog.Logger) { l.Info("m", slog.Attr{}) }, "m", nil},
		{"resolved", func(l *slog.Logger) { l.Info("m", "s", secret{}) }, "m s=resolved", map[string]string{"CRIGUARD_S": "resolved"}},
		{"error", func(l *slog.Logger) { l.Info("m", "reason", errors.New("no luck")) },
			`m reason="no luck"`, map[string]string{"CRIGUARD_REASON": "no luck"}},
		{"nil", func(l *slog.Logger) { l.Info("m", "reason", error(nil)) }, "m reason=<nil>", map[string]string{"CRIGUARD_REASON": "<nil>"}},
		{"lines", func(l *slog.Logger) { l.Info("m", "reason", "one\ntwo\n") },
			`m reason="one\ntwo\n"`, map[string]string{"CRIGUARD_REASON": "one\ntwo\n"}},
		{"hostile", func(l *slog.Logger) { l.Info("m", "pod", "a\nPRIORITY=0\n_UID=0", "b\nMESSAGE_ID", "x") },
			`m pod="a\nPRIORITY=0\n_UID=0" "b\nMESSAGE_ID"=x`, map[string]string{"CRIGUARD_POD": "a\nPRIORITY=0\n_UID=0", "CRIGUARD_B_MESSAGE_ID": "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.log(slog.New(h))
			got := r.record()
			if got.get("MESSAGE") != c.message {
				t.Errorf("MESSAGE=%s, want %s", got.get("MESSAGE"), c.message)
			}
			for name, want := range c.fields {
				if got.get(name) != want {
					t.Errorf("%s=%q, want %q", name, got.get(name), want)
				}
			}
			if len(got) != 3+len(c.fields) {
				t.Errorf("record has other fields too: %q", got)
			}
		})
	}
}

func TestJournalMessageOfSeveralLines(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	slog.New(h).Info("one\ntwo", "k", "v")
	if got := r.record().get("MESSAGE"); got != "one\ntwo k=v" {
		t.Errorf("MESSAGE=%q", got)
	}
}

func TestJournalLargeRecord(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	big := strings.Repeat("line of sixteen\n", 1<<16) // 1 MiB
	args := []any{"pod", "default/a"}
	for i := range 40 {
		args = append(args, fmt.Sprintf("big%d", i), big)
	}
	args = append(args, "last", "small")
	slog.New(h).Error(big, args...)
	got := r.record()
	if n := len(got.get("MESSAGE")); n > maxValue || n < maxValue-8 {
		t.Errorf("message of %d bytes, want about %d", n, maxValue)
	}
	if v := got.get("CRIGUARD_BIG0"); len(v) > maxValue || !strings.HasSuffix(v, "…") {
		t.Errorf("value of %d bytes", len(v))
	}
	if got.get("CRIGUARD_POD") != "default/a" || got.has("CRIGUARD_BIG39") {
		t.Error("the first fields go before the last ones")
	}
	if !got.has("CRIGUARD_LAST") {
		t.Error("a small field that still fits was left out")
	}
}

func TestJournalDerivedHandlersKeepApart(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	base := slog.New(h).With("a", 1).With("b", 2)
	one, two := base.With("c", "one"), base.With("c", "two")
	one.Info("m")
	two.Info("m")
	if got := r.record().get("MESSAGE"); got != "m a=1 b=2 c=one" {
		t.Errorf("MESSAGE=%s", got)
	}
	if got := r.record().get("MESSAGE"); got != "m a=1 b=2 c=two" {
		t.Errorf("MESSAGE=%s", got)
	}
}

func TestJournalLostRecordsAreCounted(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	queued := r.fill()
	log := slog.New(h)
	log.Info("lost")
	log.Info("lost")
	for range queued {
		r.next()
	}
	log.Info("found")
	if got := r.record(); got.get("MESSAGE") != "found" || got.get("CRIGUARD_DROPPED") != "2" {
		t.Errorf("record %q", got)
	}
	log.Info("next")
	if got := r.record(); got.has("CRIGUARD_DROPPED") {
		t.Errorf("record %q", got)
	}
}

// The logging loop must continue even if the journal hangs.
func TestJournalHangingCostsLittle(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	r.fill()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for range 100 {
			err := h.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "x", 0))
			if !errors.Is(err, syscall.EAGAIN) {
				t.Fatalf("handle: %v, want EAGAIN", err)
			}
		}
		if took := time.Since(start); took != journalPatience {
			t.Errorf("100 records took %v, want %v in all", took, journalPatience)
		}
	})
}

// With concurrent writers, every record arrives intact or is counted as lost.
func TestJournalTogether(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	log := slog.New(h).With("shared", true)
	const each, writers = 20, 4
	written := make(chan int)
	go func() {
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for range each {
					log.With("writer", i).Info("m")
				}
			})
		}
		wg.Wait()
		n := each * writers
		for ended := false; !ended; n++ {
			ended = h.Handle(t.Context(), slog.NewRecord(time.Time{}, slog.LevelInfo, "end", 0)) == nil
		}
		written <- n
	}()
	arrived, lost := 0, 0
	for ended := false; !ended; arrived++ {
		got := r.record()
		if n := got.get("CRIGUARD_DROPPED"); n != "" {
			dropped, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			lost += dropped
		}
		ended = got.get("MESSAGE") == "end"
		if w := got.get("CRIGUARD_WRITER"); !ended && got.get("MESSAGE") != "m shared=true writer="+w {
			t.Errorf("records mixed: %q", got)
		}
	}
	if n := <-written; arrived+lost != n {
		t.Errorf("%d records arrived and %d were counted as lost, want %d", arrived, lost, n)
	}
}

func TestJournalClosed(t *testing.T) {
	h, r := newJournal(t, slog.LevelInfo)
	derived := h.WithAttrs([]slog.Attr{slog.Int("a", 1)})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := derived.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "x", 0)); !errors.Is(err, syscall.EBADF) {
		t.Errorf("handle: %v, want EBADF", err)
	}
	r.none()
}
