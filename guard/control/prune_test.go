package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// pruneServer serves prune on a socket, with timeouts shorter than a prune.
func pruneServer(t *testing.T, prune func(context.Context, api.PruneOptions, api.Peer) ([]reclaim.Report, error)) (*Client, *http.Server) {
	t.Helper()
	d := rundir.Dir(t.TempDir())
	l, err := Listen(d)
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(Handler(fakeAnswers{}, &fakeOperator{prune: prune}, http.NotFoundHandler(), http.NotFoundHandler()))
	srv.ReadTimeout, srv.WriteTimeout = time.Second, time.Second // enough to read a request
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return NewClient(d), srv
}

// A prune over the socket may outlast the server's timeouts. It reports each item as it is removed, and
// returns the reports unchanged.
func TestPruneOverTheSocket(t *testing.T) {
	want := []reclaim.Report{
		{Step: reclaim.StepContainers, DryRun: true, Removed: []reclaim.Item{{Kind: reclaim.KindContainer, ID: "a", Why: "dead"}}, Kept: []reclaim.Item{{ID: "b"}}, Took: api.Duration(time.Second)},
		{Step: reclaim.StepImages, Errors: []reclaim.Failure{{Kind: reclaim.KindImage, ID: "i", Message: "boom"}}, InDoubt: []string{"container c"}, Notes: []string{"n"}},
	}
	var got api.PruneOptions
	var by api.Peer
	c, _ := pruneServer(t, func(ctx context.Context, o api.PruneOptions, p api.Peer) ([]reclaim.Report, error) {
		got, by = o, p
		for i := range 3 {
			select {
			case <-time.After(600 * time.Millisecond): // a removal
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			o.Progress(reclaim.Item{ID: fmt.Sprint(i)})
		}
		return want, nil
	})
	var items []string
	o := api.PruneOptions{Containers: true, Images: true, DryRun: true, Signal: policy.ImageFSAvailable, Until: policy.Percent(20),
		Progress: func(it reclaim.Item) { items = append(items, it.ID) }}
	reports, err := c.Prune(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON, _ := json.Marshal(want)
	gotJSON, _ := json.Marshal(reports)
	if !bytes.Equal(wantJSON, gotJSON) || !slices.Equal(items, []string{"0", "1", "2"}) {
		t.Errorf("got %s and %q, want %s", gotJSON, items, wantJSON)
	}
	if requestOf(&got) != requestOf(&o) || by.UID != os.Getuid() {
		t.Errorf("asked for %+v by %+v", got, by)
	}
}

// A client that disconnects cancels its prune. A service that ends, refuses or has no runtime each returns
// its own error.
func TestPruneOverTheSocketEnds(t *testing.T) {
	began, ended := make(chan struct{}, 1), make(chan struct{})
	c, srv := pruneServer(t, func(ctx context.Context, _ api.PruneOptions, _ api.Peer) ([]reclaim.Report, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if _, err := c.Prune(ctx, api.PruneOptions{Images: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	<-ended
	if _, err := c.Prune(t.Context(), api.PruneOptions{}); err == nil || !strings.Contains(err.Error(), "containers, images or both") {
		t.Errorf("of nothing: %v", err)
	}
	go func() { <-began; _ = srv.Close() }()
	failed := make(chan error)
	go func() { _, err := c.Prune(t.Context(), api.PruneOptions{Images: true}); failed <- err }()
	<-ended
	if err := <-failed; !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a service that ends: %v", err)
	}
	if _, err := c.Prune(t.Context(), api.PruneOptions{Images: true}); !errors.Is(err, ErrNoService) {
		t.Errorf("without a service: %v", err)
	}
	c, _ = pruneServer(t, func(context.Context, api.PruneOptions, api.Peer) ([]reclaim.Report, error) {
		return []reclaim.Report{{Step: reclaim.StepImages}}, errors.New("a threshold is met")
	})
	if reports, err := c.Prune(t.Context(), api.PruneOptions{Images: true}); err == nil || len(reports) != 1 {
		t.Errorf("ended early: %+v, %v", reports, err)
	}
	if _, err := parsePrune(strings.NewReader(`{"images":true,"signal":"imagefs.available","until":"0"}`)); !errors.Is(err, api.ErrBadCommand) {
		t.Errorf("until nothing is available: %v", err)
	}
	c, _ = pruneServer(t, nil)
	if _, err := c.Prune(t.Context(), api.PruneOptions{Images: true}); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("without a runtime: %v", err)
	}
}

// slowAnswers is an Answerer that lists the images once the client knows that it has begun.
type slowAnswers struct {
	fakeAnswers
	known chan struct{}
}

func (s slowAnswers) Images(ctx context.Context) (l reclaim.ImageList, err error) {
	select {
	case <-s.known:
		return l, cri.ErrNoRuntime
	case <-ctx.Done():
		return l, ctx.Err()
	}
}

// The answer to what may take minutes begins at once, so that a client can tell it from a service that hangs. The
// error that follows keeps its kind.
func TestSlowAnswersBegin(t *testing.T) {
	a := slowAnswers{known: make(chan struct{}, 1)}
	o := &fakeOperator{prune: func(ctx context.Context, _ api.PruneOptions, _ api.Peer) ([]reclaim.Report, error) {
		_, err := a.Images(ctx)
		return []reclaim.Report{{}}, err
	}}
	d := rundir.Dir(t.TempDir())
	l, err := Listen(d)
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(Handler(a, o, http.NotFoundHandler(), http.NotFoundHandler()))
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { a.known <- struct{}{} }})
	if _, err := NewClient(d).Images(ctx); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("images: %v", err)
	}
	if reports, err := NewClient(d).Prune(ctx, api.PruneOptions{Images: true}); !errors.Is(err, cri.ErrNoRuntime) || len(reports) != 1 {
		t.Errorf("prune: %+v, %v", reports, err)
	}
}

// A service that hangs does not keep a client that would wait for minutes.
func TestSlowAnswersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClientOver(rundir.Dir("/nowhere"), func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }() // reads the request, and is silent
			return fromPeer{near}, nil
		})
		for name, ask := range map[string]func() error{
			"images": func() error { _, err := c.Images(t.Context()); return err },
			"prune":  func() error { _, err := c.Prune(t.Context(), api.PruneOptions{Images: true}); return err },
			"status": func() error { _, err := c.Status(t.Context()); return err },
		} {
			start := time.Now()
			if err := ask(); !errors.Is(err, ErrNoAnswer) || time.Since(start) != requestTimeout {
				t.Errorf("%s: after %s: %v", name, time.Since(start), err)
			} else if want := "ask service on /nowhere/criguard.sock: the criguard service did not answer (pid 42): timed out after 10s"; err.Error() != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	})
}

// fromPeer is a connection whose peer is known.
type fromPeer struct{ net.Conn }

func (fromPeer) Peer() api.Peer { return api.Peer{PID: 42} }

func FuzzParsePrune(f *testing.F) {
	f.Add(`{"containers":true,"images":true,"dry_run":true,"signal":"imagefs.available","until":"20%"}`)
	f.Add(`{"images":true} x`)
	f.Add(`{"images":true,"signal":"memory.available","until":"1Gi"}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parsePrune(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, api.ErrBadCommand) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		b, err := json.Marshal(requestOf(&o))
		if err != nil {
			t.Fatal(err)
		}
		again, err := parsePrune(bytes.NewReader(b))
		if err != nil || requestOf(&again) != requestOf(&o) {
			t.Fatalf("%+v is written as %s and read as %+v, %v", o, b, again, err)
		}
	})
}
