package main

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/policy"
)

// askPermit sends a request for a permit over a socket.
func askPermit(t *testing.T, path string) (string, error) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://agent/v1/permits/memory/u1", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if err := req.Write(c); err != nil {
		return "", err
	}
	text, err := io.ReadAll(c)
	return string(text), err
}

// An agent counts its calls, and nothing is left of it once another has taken its place: neither its socket nor a
// connection.
func TestFakeAgent(t *testing.T) {
	a := &fakeAgent{path: filepath.Join(t.TempDir(), "fleet.sock")}
	set := func(serve func(net.Conn)) {
		t.Helper()
		if err := a.set(serve); err != nil {
			t.Fatal(err)
		}
	}
	set(agenttest.Answer(func() string { return agenttest.Denied }))
	if text, err := askPermit(t, a.path); err != nil || !strings.HasSuffix(text, agenttest.Denied) || a.calls.Load() != 1 {
		t.Errorf("answer %q, %v after %d calls", text, err, a.calls.Load())
	}
	set(agenttest.Hangs()["reads"])
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = askPermit(t, a.path)
	}()
	for a.calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	set(nil)
	<-answered
	if _, err := net.Dial("unix", a.path); err == nil {
		t.Error("there is still a socket")
	}
	set(lying())
	if a.calls.Load() != 0 {
		t.Errorf("%d calls of another agent", a.calls.Load())
	}
	set(nil)
}

// No lie is a permit that a guard could use: the pods that stand by stay.
func TestLying(t *testing.T) {
	a := &fakeAgent{path: filepath.Join(t.TempDir(), "fleet.sock")}
	if err := a.set(lying()); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for range 20 {
		text, err := askPermit(t, a.path)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(text, "\r\n\r\n")
		if strings.Contains(body, agenttest.Grants()["permit for ever"]) {
			t.Errorf("a valid permit: %.100s", body)
		}
		told[body] = true
	}
	if want := len(agenttest.Grants()) + len(agenttest.Denials()) - 1; len(told) != want {
		t.Errorf("%d lies, want %d in turn", len(told), want)
	}
	if err := a.set(nil); err != nil {
		t.Error(err)
	}
}

// A case is in force once its soft stop is held for its own reason. Without a fleet, the stop is not due.
func TestFleetCases(t *testing.T) {
	for i, held := range []api.Hold{
		{},
		{Reason: api.HeldFleet, Detail: "zone z1 is partial: 0/s"},
		{Reason: api.HeldFleet, Detail: "alone"},
		{Reason: api.HeldAsking, Detail: "the agent does not answer"},
		{Reason: api.HeldAsking},
		{Reason: api.HeldFleet, Detail: "denied"},
		{Reason: api.HeldFleet, Detail: "alone"},
	} {
		c := fleetCases()[i]
		if i == 0 {
			if c.name != fleetOff || c.held != nil {
				t.Errorf("the first case is %s, and its stop is due: %v", c.name, c.held != nil)
			}
			continue
		}
		others := []api.Hold{{}, {Reason: api.HeldOutside}}
		if i < 3 {
			others = append(others, api.Hold{Reason: api.HeldAsking}, api.Hold{Reason: api.HeldFleet, Detail: "waiting for the agent"})
		}
		if !c.held(held) || slices.ContainsFunc(others, c.held) {
			t.Errorf("%s: held %+v: %v, or one of %+v", c.name, held, c.held(held), others)
		}
	}
}

// The soft threshold counts, not a hard one that is met.
func TestSoftIsMet(t *testing.T) {
	status := func(ts ...api.ThresholdStatus) *api.Status {
		memory, other := api.SignalStatus{Thresholds: ts}, api.SignalStatus{}
		memory.Signal, other.Signal = policy.MemoryAvailable, policy.PIDAvailable
		return &api.Status{Signals: []api.SignalStatus{other, memory}}
	}
	for _, tt := range []struct {
		st   *api.Status
		want bool
	}{
		{status(api.ThresholdStatus{Kind: "hard", Met: true}, api.ThresholdStatus{Kind: "soft", Met: true}), true},
		{status(api.ThresholdStatus{Kind: "hard", Met: true}, api.ThresholdStatus{Kind: "soft"}), false},
		{status(api.ThresholdStatus{Kind: "hard", Met: true}), false},
		{status(), false},
	} {
		if got := softIsMet(tt.st); got != tt.want {
			t.Errorf("%+v: %v", tt.st.Signals, got)
		}
	}
}
