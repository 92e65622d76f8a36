package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
)

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "Yes\n": true, " yes \n": true, "": false, "\n": false, "n\n": false, "yesterday\n": false, "no\ny\n": false,
	} {
		var out strings.Builder
		if got := confirmed(t.Context(), strings.NewReader(answer), &out, "Stop 7 sandboxes?"); got != want || !strings.Contains(out.String(), "Stop 7 sandboxes? [y/N] ") {
			t.Errorf("%q: %t, after %q", answer, got, out.String())
		}
	}
}

// Ctrl-C ends a question that waits for its answer, and counts as no.
func TestConfirmedInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	keyboard, screen := io.Pipe() // no key is pressed
	defer func() { _ = screen.Close() }()
	interrupt()
	if confirmed(ctx, keyboard, io.Discard, "Stop?") {
		t.Error("confirmed")
	}
}

// The wait for a drain survives a service that ends while it is answering, and one that has not listed the pods yet.
func TestDrainedOverARestart(t *testing.T) {
	dir := runDir(t)
	l, err := net.Listen("unix", rundir.Dir(dir).Socket())
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(api.DrainPlan{Draining: true})
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-done }()
	wait := stopFlags{timeout: time.Minute}
	if err := wait.drained(t.Context(), control.NewClient(rundir.Dir(dir)), &api.DrainPlan{Draining: true, Left: 1, Pods: []api.DrainPod{{Sandbox: "a"}}}); err != nil || asked.Load() != 3 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

func TestPrintPlan(t *testing.T) {
	var out strings.Builder
	printPlan(&out, api.CommandAnswer{Message: "would stop 1 pod", Plan: &api.DrainPlan{Pods: []api.DrainPod{
		{Pod: "d/a", Priority: -10, QoS: "BestEffort", Grace: 3e9}, {Pod: "kube-system/k", QoS: "Burstable", Stays: "namespace kube-system"},
	}}})
	want := `POD            PRIORITY  QOS         GRACE  PLAN
d/a            -10       BestEffort  3s     stop
kube-system/k  0         Burstable   -      stays: namespace kube-system
would stop 1 pod
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if printPlan(&out, api.CommandAnswer{Message: "would stop 0 pods", Plan: &api.DrainPlan{}}); out.String() != "would stop 0 pods\n" {
		t.Errorf("an empty plan: %s", out.String())
	}
}
