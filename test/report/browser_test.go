package report_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/criguard/criguard/test/lab"
)

// patience is how long a browser may take for a page.
const patience = time.Minute

// tab is a browser with one page open.
type tab struct {
	*testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	said     []string // on the console, and errors
	requests []string
}

// open opens a page in a browser of its own.
func open(t *testing.T, page []byte, before ...func(*tab)) *tab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	program, err := lab.Browser(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}))
	t.Cleanup(srv.Close)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	b := &tab{T: t, url: srv.URL + "/"}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	for _, f := range before {
		f(b)
	}
	do(b, chromedp.Navigate(b.url))
	return b
}

// hear notes what the page asks for and complains of.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			b.said = append(b.said, string(a.Value))
		}
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if !strings.HasSuffix(e.Entry.URL, "/favicon.ico") {
			b.said = append(b.said, e.Entry.Text)
		}
	}
}

// do takes a step in the page, and call one of the browser's protocol.
func do[V any](b *tab, step chromedp.Action[V]) V {
	b.Helper()
	v, err := chromedp.Run(b.ctx, step)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func call[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, c, params); err != nil {
		b.Fatal(err)
	}
}

// ask is the value of an expression in the page.
func ask[V any](b *tab, expression string) V {
	b.Helper()
	return do(b, chromedp.Evaluate[V](expression))
}

// waitFor waits until an expression in the page is true.
func (b *tab) waitFor(expression string) {
	b.Helper()
	do(b, chromedp.Poll[bool](expression))
}

// scripts switches the page's own scripts on or off.
func scripts(on bool) func(*tab) {
	return func(b *tab) {
		b.Helper()
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	}
}

// size is that of the window.
func size(width, height int64) func(*tab) {
	return func(b *tab) {
		b.Helper()
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
	}
}

// quiet tells whether the page asked for nothing but itself and complained of nothing.
func (b *tab) quiet() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r != b.url && r != b.url+"favicon.ico" { // the browser asks for that by itself
			b.Errorf("the page asked for %s", r)
		}
	}
	if len(b.requests) == 0 {
		b.Error("no request was noted, not even the page")
	}
	if len(b.said) > 0 {
		b.Errorf("the browser says %q", b.said)
	}
}

// at shows the page in a window of that size.
func (b *tab) at(width, height int64) {
	b.Helper()
	size(width, height)(b)
	b.waitFor(fmt.Sprintf(`innerWidth === %d && [...document.querySelectorAll(".plot canvas")].every((c) => c.clientWidth <= %d)`, width, width))
}

// fits tells whether nothing sticks out of the page or is too small to be read.
func (b *tab) fits() {
	b.Helper()
	if wide := ask[string](b, `(() => {
		const room = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth > room) return "the page is " + document.documentElement.scrollWidth + " wide";
		for (const e of document.querySelectorAll("body *"))
			if (e.getBoundingClientRect().right > room + 1 && !e.closest(".scroll, pre, .plot, thead")) return e.outerHTML.slice(0, 200);
		return "";
	})()`); wide != "" {
		b.Errorf("sticks out: %s", wide)
	}
	if small := ask[string](b, `(() => {
		for (const e of document.querySelectorAll("body *:not(script)"))
			if (e.innerText && parseFloat(getComputedStyle(e).fontSize) < 14 && !e.closest(".plot")) return e.outerHTML.slice(0, 200);
		return "";
	})()`); small != "" {
		b.Errorf("text is too small: %s", small)
	}
}

// inked is for each plot how many of its pixels are in the colour of a custom property.
func (b *tab) inked(property string) []int {
	b.Helper()
	return ask[[]int](b, fmt.Sprintf(`[...document.querySelectorAll(".plot")].map((box) => {
		const c = box.querySelector("canvas");
		if (!c) return 0;
		const copy = (w, h) => {
			const to = document.createElement("canvas");
			[to.width, to.height] = [w, h];
			return to.getContext("2d", { willReadFrequently: true });
		};
		const probe = copy(1, 1), whole = copy(c.width, c.height);
		whole.drawImage(c, 0, 0);
		probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(%q).trim();
		probe.fillRect(0, 0, 1, 1);
		const want = probe.getImageData(0, 0, 1, 1).data;
		const all = whole.getImageData(0, 0, c.width, c.height).data;
		let n = 0;
		for (let i = 0; i < all.length; i += 4)
			if (all[i + 3] > 200 && [0, 1, 2].every((k) => Math.abs(all[i + k] - want[k]) < 24)) n++;
		return n;
	})`, property))
}

// picture keeps how the page looks where $PICTURES says.
func (b *tab) picture(name string) {
	b.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), do(b, chromedp.FullScreenshot(100)), 0o600); err != nil {
		b.Error(err)
	}
}

// media is what the page is shown on: screen or print, in a dark or light scheme.
func (b *tab) media(kind, scheme string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: kind, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.waitFor(fmt.Sprintf("matchMedia(%q).matches", kind+" and (prefers-color-scheme: "+scheme+")"))
}
