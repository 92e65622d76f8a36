package client

import (
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/safetext"
)

// Whatever the agent answers, times are clamped and texts are short.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		isPending, isDenied, `{"state":"granted","deadline":"1h0m10s"}`, `{"state":"granted","deadline":"2562047h47m16s"}`, `{"state":"denied","retry_after":"-1s"}`,
		`{"state":"denied","reason":"\u001b[2J"}`, `{"state":5}`, `{"retry_after":5}`, `null`, `[]`, `{"state":"denied","retry_after":"1e99s"}`,
	} {
		f.Add([]byte(text), int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, body []byte, at int64) {
		now := time.Duration(at) & (1<<62 - 1)
		a, err := parseAnswer(body)
		if err != nil {
			return
		}
		r := &request{}
		err = r.note(a, now)
		if r.permit != 0 && (r.permit <= now || r.permit > now+maxPermit) || r.retry < 0 || r.retry > now+maxRetry || r.due < now+pendingEvery || r.due > now+maxPermit {
			t.Errorf("%s at %s: permit %s, retry %s, due %s", body, now, r.permit, r.retry, r.due)
		}
		if len(r.reason) == 0 || len(r.reason) > 12*maxReason || r.reason != safetext.Line(r.reason) || strings.Contains(r.reason, "\n") {
			t.Errorf("reason %q", r.reason)
		}
		if err != nil || (a.State == pending) != (r.pending == now) && now > 0 {
			t.Errorf("%s: %v, pending since %s", body, err, r.pending)
		}
	})
}
