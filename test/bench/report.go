package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// report is the whole measurement, as it is written.
type report struct {
	APIVersion string    `json:"apiVersion"`
	Time       time.Time `json:"time"`
	Kernel     string    `json:"kernel"`
	CPUs       int       `json:"cpus"`
	MemoryMiB  int64     `json:"memory_mib"`
	LoadBegin  string    `json:"load_at_begin"` // the three averages of /proc/loadavg
	LoadEnd    string    `json:"load_at_end"`
	Cgroup     string    `json:"cgroup,omitempty"`
	Containerd string    `json:"containerd,omitempty"`
	Earlyoom   string    `json:"earlyoom,omitempty"`

	Passes    []passCost `json:"passes,omitempty"`
	Idle      *idleCost  `json:"idle,omitempty"`
	Latency   []latency  `json:"latency,omitempty"`
	Runtimes  []latency  `json:"runtimes,omitempty"` // with a hanging or slow runtime
	Fleet     []latency  `json:"fleet,omitempty"`    // the first one is without a fleet
	Footprint *footprint `json:"footprint,omitempty"`
	Breaches  *endurance `json:"breaches,omitempty"`
	Empty     []litter   `json:"empty_pod_cgroups,omitempty"`
	Churn     []churn    `json:"churn,omitempty"`
	Goals     []goal     `json:"goals"`
}

// latency is one guard at one rate. Times are in milliseconds after the crossing.
type latency struct {
	Guard       string  `json:"guard"`
	Case        string  `json:"case,omitempty"`
	Rate        float64 `json:"rate_mib_s"`
	HeadroomMiB int64   `json:"headroom_mib"`
	Reached     spread  `json:"reached_mib_s"`
	Killed      spread  `json:"killed_ms"`   // the hog's last growth
	Dead        spread  `json:"dead_ms"`     // its process is gone and its memory freed
	Relieved    spread  `json:"relieved_ms"` // memory is back above the level
	Overshoot   spread  `json:"overshoot_mib"`
	Size        spread  `json:"hog_mib"` // the larger, the longer the kernel frees it
	Wrong       int     `json:"wrong_victims"`
	Spoiled     int     `json:"spoiled_tries"` // repeated: something other than the hog crossed the level
}

func (l *latency) add(t try) {
	l.Reached.add(t.reached)
	l.Killed.addTime(t.killed)
	l.Dead.addTime(t.dead)
	l.Relieved.addTime(t.relieved)
	l.Overshoot.add(float64(t.overshoot) / mib)
	l.Size.add(float64(t.size) / mib)
	if !t.right {
		l.Wrong++
	}
}

func (l *latency) finish() {
	for _, s := range []*spread{&l.Reached, &l.Killed, &l.Dead, &l.Relieved, &l.Overshoot, &l.Size} {
		s.finish()
	}
}

func (l *latency) line() string {
	return fmt.Sprintf("grew for the last time after %s ms (median / p99), level kept again after %s, dead after %s; wrong %d, spoiled %d",
		l.Killed, l.Relieved, l.Dead, l.Wrong, l.Spoiled)
}

func newReport() *report {
	r := &report{APIVersion: "criguard.io/bench/v1", Time: time.Now().UTC(), CPUs: runtime.NumCPU(), LoadBegin: loadAverage()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		r.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		r.MemoryMiB = int64(info.Totalram) * int64(info.Unit) / mib
	}
	return r
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// finish compares the figures with the goals.
func (r *report) finish() {
	r.LoadEnd = loadAverage()
	r.Goals = r.judge()
}

func (r *report) ok() bool {
	for _, g := range r.Goals {
		if !g.Met {
			return false
		}
	}
	return true
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// show prints the tables.
func (r *report) show(w io.Writer) {
	fmt.Fprintf(w, "\nlinux %s, cgroup %s, %d CPUs, %d MiB; containerd %s; earlyoom %s; load %s at the begin, %s at the end\n",
		r.Kernel, r.Cgroup, r.CPUs, r.MemoryMiB, r.Containerd, r.Earlyoom, r.LoadBegin, r.LoadEnd)
	printLatency(w, "A hog crosses the threshold (milliseconds after that, median / p99)", r.Latency)
	printLatency(w, "With a runtime in trouble", r.Runtimes)
	r.printFleet(w)
	r.printIdle(w)
	r.printPasses(w)
	r.printBreaches(w)
	r.printLitter(w)
	title(w, "Goals")
	for _, g := range r.Goals {
		verdict := "ok"
		if !g.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%-7s %s: %s\n", verdict, g.Name, g.Got)
	}
}

func title(w io.Writer, text string) { fmt.Fprintf(w, "\n%s\n", text) }

func printLatency(w io.Writer, heading string, rows []latency) {
	if len(rows) == 0 {
		return
	}
	title(w, heading)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "guard\tMiB/s\treached\theadroom MiB\tgrew last\tdead\trelieved\tovershoot MiB\thog MiB\twrong\ttries\t")
	for i := range rows {
		l := &rows[i]
		name := l.Guard
		if l.Case != "" {
			name += ", " + l.Case
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%d\t%s\t%s\t%s\t%s\t%.0f\t%d\t%d\t\n",
			name, l.Rate, l.Reached.Median, l.HeadroomMiB, l.Killed, l.Dead, l.Relieved, l.Overshoot, l.Size.Median, l.Wrong, l.Dead.N)
	}
	_ = t.Flush()
}
