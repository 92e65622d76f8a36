package fleet

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const plotPath = "../../docs/fleet-storm.svg"

var update = flag.Bool("update", false, "write docs/fleet-storm.svg and the table in docs/fleet.md")

// plotted is the storm in the plot.
const plotted = "threshold, all at once, 90 min: patience ends everywhere"

// docs/fleet-storm.svg shows a storm minute by minute, with and without the fleet.
func TestPlot(t *testing.T) {
	all := storms()
	i := slices.IndexFunc(all, func(s storm) bool { return s.name == plotted })
	if i < 0 {
		t.Fatalf("no storm is %q", plotted)
	}
	s := all[i]
	with, _ := s.play(true)
	without, _ := s.play(false)
	got := plot(s.lasts, []line{
		{"without a fleet", "#d62728", perMinute(s.lasts, without[Local])},
		{"with a fleet: permits", "#2ca02c", perMinute(s.lasts, with[Permit])},
		{"with a fleet: permits and trickle", "#1f77b4", perMinute(s.lasts, slices.Concat(with[Permit], with[Trickle], with[Local]))},
	})
	if *update {
		if err := os.WriteFile(plotPath, []byte(got), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(plotPath); err != nil || string(want) != got {
		t.Errorf("%s is not current (hint: go test ./guard/fleet -run TestPlot -update): %v", plotPath, err)
	}
}

// line is a line of the plot.
type line struct {
	name, color string
	counts      []int // by minute
}

func perMinute(lasts time.Duration, at []time.Duration) []int {
	counts := make([]int, int(lasts/time.Minute))
	for _, d := range at {
		counts[min(int(d/time.Minute), len(counts)-1)]++
	}
	return counts
}

// plot draws lines over a logarithmic axis from 1 to 10,000 stops per minute.
func plot(lasts time.Duration, lines []line) string {
	const left, top, width, height = 60, 20, 660, 260
	x := func(minute int) float64 { return left + width*float64(minute)/lasts.Minutes() }
	y := func(n int) float64 { return top + height*(1-math.Log10(float64(max(n, 1)))/4) }
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#888\">\n", left+width+20, top+height+50)
	fmt.Fprintf(&b, "<title>Soft stops per minute: a soft threshold pushed to 10,000 nodes at once</title>\n")
	for n := 1; n <= 10_000; n *= 10 {
		fmt.Fprintf(&b, "<path d=\"M%d %.1fh%d\" stroke=\"#8884\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", left, y(n), width, left-6, y(n)+4, n)
	}
	for minute := 0; minute <= int(lasts.Minutes()); minute += 15 {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d min</text>\n", x(minute), top+height+18, minute)
	}
	for i, l := range lines {
		var points strings.Builder
		for minute, n := range l.counts {
			fmt.Fprintf(&points, "%.1f,%.1f %.1f,%.1f ", x(minute), y(n), x(minute+1), y(n))
		}
		fmt.Fprintf(&b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", strings.TrimSpace(points.String()), l.color)
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", left+i*190, top+height+40, l.color, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
