package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// pruneRequest is the JSON form of PruneOptions.
type pruneRequest struct {
	Containers bool   `json:"containers,omitempty"`
	Images     bool   `json:"images,omitempty"`
	DryRun     bool   `json:"dry_run,omitempty"`
	IgnoreAge  bool   `json:"ignore_age,omitempty"`
	Signal     string `json:"signal,omitempty"`
	Until      string `json:"until,omitempty"`
}

// pruneLine is one line of the answer: a removed item or, in the last line, the reports or an error.
type pruneLine struct {
	Removed *reclaim.Item    `json:"removed,omitempty"`
	Reports []reclaim.Report `json:"reports,omitempty"`
	Error   string           `json:"error,omitempty"`
	NoneUp  bool             `json:"no_runtime,omitempty"` // the error is cri.ErrNoRuntime
	Done    bool             `json:"done,omitempty"`
}

// parsePrune parses and validates a request. It returns api.ErrBadCommand with the reason.
func parsePrune(r io.Reader) (o api.PruneOptions, err error) {
	var q pruneRequest
	dec := json.NewDecoder(io.LimitReader(r, api.MaxCommand))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return o, fmt.Errorf("%w: %w", api.ErrBadCommand, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return o, fmt.Errorf("%w: more than one JSON value", api.ErrBadCommand)
	}
	o = api.PruneOptions{Containers: q.Containers, Images: q.Images, DryRun: q.DryRun, IgnoreAge: q.IgnoreAge}
	if !o.Containers && !o.Images {
		return o, fmt.Errorf("%w: a prune needs containers, images or both", api.ErrBadCommand)
	}
	if q.Until == "" && q.Signal == "" {
		return o, nil
	}
	if o.Signal, err = policy.ParseSignal(q.Signal); err == nil && !o.Signal.IsDisk() {
		err = fmt.Errorf("%s is no disk signal", o.Signal)
	}
	if err == nil {
		if o.Until, err = policy.ParseQuantity(q.Until); err == nil && o.Until.IsZero() {
			err = fmt.Errorf("until %s: want more than 0", q.Until) // 0 in PruneOptions would be no target
		}
	}
	if err != nil {
		return api.PruneOptions{}, fmt.Errorf("%w: %w", api.ErrBadCommand, err)
	}
	return o, nil
}

// requestOf encodes options for parsePrune.
func requestOf(o *api.PruneOptions) pruneRequest {
	q := pruneRequest{Containers: o.Containers, Images: o.Images, DryRun: o.DryRun, IgnoreAge: o.IgnoreAge}
	if !o.Until.IsZero() {
		q.Signal, q.Until = o.Signal.String(), o.Until.String()
	}
	return q
}

// handlePrune streams a prune to the client. A prune may take minutes, and is cancelled when the client
// disconnects.
func handlePrune(mux *http.ServeMux, o Operator) {
	mux.HandleFunc("POST /v1/prune", func(w http.ResponseWriter, r *http.Request) {
		by, err := peerOf(r)
		if err != nil {
			replyError(w, err)
			return
		}
		options, err := parsePrune(r.Body)
		if err != nil {
			replyError(w, badRequest(err))
			return
		}
		begin(w, r)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		out, enc := http.NewResponseController(w), json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		w.Header().Set("Content-Type", "application/x-ndjson")
		send := func(line pruneLine) { // the server's write timeout is too short for a prune
			err := errors.Join(out.SetWriteDeadline(time.Now().Add(requestTimeout)), enc.Encode(line), out.Flush())
			if err != nil {
				cancel() // the client disconnected
			}
		}
		options.Progress = func(it reclaim.Item) { send(pruneLine{Removed: &it}) }
		reports, err := o.Prune(ctx, options, by)
		line := pruneLine{Reports: reports, Done: true}
		if err != nil {
			line.Error, line.NoneUp = err.Error(), errors.Is(err, cri.ErrNoRuntime)
		}
		send(line)
	})
}

// patientHeader is the header of a client that waits for minutes once an answer has begun. Others may not expect that there is
// another one before it.
const patientHeader = "Criguard-Patient"

// begin says at once that an answer comes that may take minutes. Its status is not known yet.
func begin(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(patientHeader) != "" {
		w.WriteHeader(http.StatusProcessing)
	}
}

// asPatient returns a client for an answer that may take minutes: only its beginning has to come in time.
func (c *Client) asPatient() *Client {
	h := *c.http
	h.Timeout = 0
	return &Client{http: &h, path: c.path, pid: c.pid, patient: true}
}

// begun returns a context for a request that ends if the answer has not begun in time, and the function that releases
// it.
func begun(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(requestTimeout, func() { cancel(fmt.Errorf("%w after %s", errTimedOut, requestTimeout)) })
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { late.Stop() }}
	return httptrace.WithClientTrace(ctx, trace), func() { late.Stop(); cancel(nil) }
}

// imagesWithin limits how long the service judges the images for a client: reading large air-gap files takes
// minutes.
const imagesWithin = 10 * time.Minute

// handleImages serves the verdicts about all images.
func handleImages(mux *http.ServeMux, a Answerer) {
	const pattern = "GET /v1/images"
	images := http.NewServeMux()
	handle(images, pattern, func(r *http.Request) (reclaim.ImageList, error) { return a.Images(r.Context()) })
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(imagesWithin)) // best effort
		begin(w, r)
		images.ServeHTTP(w, r)
	})
}

// Images returns the service's verdict about every image, however long that takes, or ErrNoService if no service
// runs.
func (c *Client) Images(ctx context.Context) (reclaim.ImageList, error) {
	return get[reclaim.ImageList](ctx, c.asPatient(), "/v1/images", nil)
}

// Prune makes the service remove everything eligible, however long that takes. It returns ErrNoService if no
// service runs.
func (c *Client) Prune(ctx context.Context, o api.PruneOptions) ([]reclaim.Report, error) {
	body, err := json.Marshal(requestOf(&o))
	if err != nil {
		return nil, fmt.Errorf("ask service: %w", err)
	}
	var reports []reclaim.Report
	err = c.asPatient().exchange(ctx, http.MethodPost, url.URL{Path: "/v1/prune"}, bytes.NewReader(body), func(answer io.Reader) error {
		lines := json.NewDecoder(io.LimitReader(answer, maxAnswer))
		for {
			var line pruneLine
			if err := lines.Decode(&line); err != nil {
				return c.unanswered(ctx, err)
			}
			switch {
			case line.Removed != nil && o.Progress != nil:
				o.Progress(*line.Removed)
			case line.Error != "":
				e := remoteError{text: line.Error}
				if line.NoneUp {
					e.is = cri.ErrNoRuntime
				}
				reports = slices.Clip(line.Reports)
				return e
			case line.Done:
				reports = slices.Clip(line.Reports)
				return nil
			}
		}
	})
	return reports, err
}
