package guard

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/safetext"
)

// hostileText contains no character that a command's reason may not contain.
const hostileText = "a\u009b31m\u202egnp\u2066\u200b\u2028"

// wantSafe fails if a terminal that prints the text would act on it.
func wantSafe(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && safetext.Unsafe(r) }); i >= 0 || text == "" {
		t.Errorf("%s: %q", what, text)
	}
}

// Text from pods and operators is escaped in everything that the service returns or writes: answers on the
// control socket, which curl prints, files, hook events and the line in systemctl status.
func TestServiceEscapesText(t *testing.T) {
	s, _, end := servedEffect(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'")))
	client := control.NewClient(s.opt.Dir)
	if _, err := client.Command(t.Context(), api.Command{Command: api.CommandPause, For: api.Duration(time.Hour), Reason: "why " + hostileText}); err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	for _, path := range []string{"/v1/status", "/v1/history", "/v1/drain", "/v1/rank?signal=" + "x%1b%c2%9b%e2%80%ae"} {
		conn, err := dialer.DialContext(t.Context(), "unix", s.opt.Dir.Socket())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		wantSafe(t, path, body)
	}
	var line string
	if err := s.do(t.Context(), func() { line = s.statusLine() }); err != nil {
		t.Fatal(err)
	}
	wantSafe(t, "status line", line)
	end()
	for _, name := range []string{ordersFile, history.FileName} {
		text, err := os.ReadFile(s.opt.Dir.Path(name))
		if err != nil || !strings.Contains(string(text), "why a") {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		wantSafe(t, name, string(text))
	}
	event := hook.Payload{Event: config.EventStop, Stop: &api.StopView{Pod: hostileText}}.Encode()
	var got hook.Payload
	if err := json.Unmarshal(event, &got); err != nil || got.Stop.Pod != hostileText {
		t.Errorf("%v: %s", err, event)
	}
	wantSafe(t, "event of a hook", string(event))
}
