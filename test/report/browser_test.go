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
	"github.com/criguard/criguard/test/need"
)

// patience is how long a browser may take for a page.
const patience = time.Minute

// tab is a browser with one open page.
type tab struct {
	*testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	said     []string // console messages and errors
	requests []string
}

// open opens a page in a browser of its own.
func open(t *testing.T, page []byte, before ...func(*tab)) *tab {
	t.Helper()
	need.Root(t)
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
	b := &tab{T: t, url: srv.URL + "/"}
	// A browser that crashes while it starts says nothing about the page.
	for tries := 3; ; tries-- {
		err := b.start(ctx, options)
		if err == nil {
			break
		}
		if tries == 1 || ctx.Err() != nil || !strings.Contains(err.Error(), "failed to start") {
			t.Fatal(err)
		}
		t.Logf("start the browser again: %v", err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	for _, f := range before {
		f(b)
	}
	do(b, chromedp.Navigate(b.url))
	return b
}

// start starts a browser, which ends with the test.
func (b *tab) start(ctx context.Context, options []chromedp.ExecAllocatorOption) error {
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	b.Cleanup(end)
	b.ctx, end = chromedp.NewContext(ctx, chromedp.WithListener(b.hear))
	b.Cleanup(end)
	_, err := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	return err
}

// hear records the page's requests and error messages.
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

// do runs an action in the page, and call a command of the browser's protocol.
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

// ask returns the value of an expression in the page.
func ask[V any](b *tab, expression string) V {
	b.Helper()
	return do(b, chromedp.Evaluate[V](expression))
}

// waitFor waits until an expression in the page is true.
func (b *tab) waitFor(expression string) {
	b.Helper()
	do(b, chromedp.Poll[bool](expression))
}

// scripts turns the page's own scripts on or off.
func scripts(on bool) func(*tab) {
	return func(b *tab) {
		b.Helper()
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	}
}

// size sets the size of the window.
func size(width, height int64) func(*tab) {
	return func(b *tab) {
		b.Helper()
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
	}
}

// quiet checks that the page requested nothing except itself and reported no errors.
func (b *tab) quiet() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r != b.url && r != b.url+"favicon.ico" { // the browser requests it by itself
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

// at shows the page in a window of the given size.
func (b *tab) at(width, height int64) {
	b.Helper()
	size(width, height)(b)
	b.waitFor(fmt.Sprintf(`innerWidth === %d && [...document.querySelectorAll(".plot canvas")].every((c) => c.clientWidth <= %d)`, width, width))
}

// fits checks that nothing extends beyond the page's width or is too small to read.
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

// readable checks that no word is broken and that no label of a plot covers another one.
func (b *tab) readable() {
	b.Helper()
	if broken := ask[[]string](b, `(() => {
		const broken = [], range = document.createRange();
		const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
		for (let node; node = texts.nextNode();)
			for (const word of node.data.matchAll(/\d{4}-\d\d-\d\d|[\p{L}\p{N}_.]+/gu)) {
				if (word[0].length > 40 || node.parentElement.closest("noscript")) continue; // names may be longer than a column
				range.setStart(node, word.index);
				range.setEnd(node, word.index + word[0].length);
				if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) broken.push(word[0] + " in " + node.data.slice(0, 80));
			}
		return broken;
	})()`); len(broken) > 0 {
		b.Errorf("broken words: %q", broken)
	}
	if labels := ask[[]int](b, `[...document.querySelectorAll(".plot")].map((e) => e.labels.length)`); len(labels) == 0 || labels[0] < 4 {
		b.Errorf("the plots have %v labels", labels)
	}
	if covered := ask[[]string](b, `[...document.querySelectorAll(".plot")].filter((e) => e.labels.some((a, i) => e.labels.some((b, j) =>
		i < j && a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]))).map((e) => e.id)`); len(covered) > 0 {
		b.Errorf("labels cover each other in %q", covered)
	}
}

// inked returns, for each plot, the number of pixels in the colour of a custom property.
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

// picture saves a screenshot of the page in $PICTURES, if set.
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

// media sets the page's medium, screen or print, and its dark or light colour scheme.
func (b *tab) media(kind, scheme string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: kind, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.waitFor(fmt.Sprintf("matchMedia(%q).matches", kind+" and (prefers-color-scheme: "+scheme+")"))
}
