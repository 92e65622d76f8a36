package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// run replays lines with the default rates.
func run(t *testing.T, lines ...string) ([]string, Summary) {
	t.Helper()
	var out bytes.Buffer
	sum, err := Run(t.Context(), fleet.DefaultRates(), strings.NewReader(strings.Join(lines, "\n")), &out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n"), sum
}

// queues returns the decisions in short: granted | out of patience | held.
func queues(t *testing.T, lines ...string) (short []string) {
	t.Helper()
	out, _ := run(t, lines...)
	for _, text := range out {
		var d Decision
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		var held []string
		for _, h := range d.Held {
			held = append(held, h.Node+" ("+h.Reason+")")
		}
		short = append(short, strings.Join(d.Granted, " ")+"|"+strings.Join(d.Patience, " ")+"|"+strings.Join(held, " "))
	}
	return short
}

// Every field of the output.
func TestOutput(t *testing.T) {
	out, _ := run(t,
		`{"at":"0s","members":{"z1":12,"z2":60},"wanting":{"z1":2},"requests":[{"node":"n3","zone":"z1","workload":"shop/db"},{"node":"n2","zone":"z1","workload":"shop/db"}]}`,
		``,
		`{"at":"10s","wanting":{"z1":7,"z2":60},"requests":[{"node":"n1","zone":"z1","workload":"shop/web"}],"withdraw":["n3","unknown"]}`,
		`{"at":"15m10s","members":{"z1":7}}`,
	)
	want := []string{
		`{"at":"0s","zones":{"z1":{"members":12,"wanting":2,"state":"normal","rate":0.1},"z2":{"members":60,"wanting":0,"state":"normal","rate":0.1}},"fleet":"normal","granted":["n2"],"patience":[],"held":[{"node":"n3","reason":"workload shop/db: next permit in 5m"}]}`,
		`{"at":"10s","zones":{"z1":{"members":12,"wanting":7,"state":"partial","rate":0},"z2":{"members":60,"wanting":60,"state":"full","rate":0.01}},"fleet":"normal","granted":[],"patience":[],"held":[{"node":"n1","reason":"zone z1 is partial: 0/s"}]}`,
		`{"at":"15m10s","zones":{"z1":{"members":7,"wanting":7,"state":"full","rate":0},"z2":{"members":60,"wanting":60,"state":"full","rate":0}},"fleet":"full","granted":[],"patience":["n1"],"held":[]}`,
	}
	for i := range max(len(out), len(want)) {
		if i >= len(out) || i >= len(want) || out[i] != want[i] {
			t.Fatalf("line %d:\n%s\nwant\n%s", i+1, strings.Join(out, "\n"), strings.Join(want, "\n"))
		}
	}
}

const calm = `"members":{"a":100,"b":100},"wanting":{"a":1,"b":1}`

func request(node, zone, workload string) string {
	return fmt.Sprintf(`{"node":%q,"zone":%q,"workload":%q}`, node, zone, workload)
}

// requests is a line with requests.
func requests(at string, list ...string) string {
	return fmt.Sprintf(`{"at":%q,%s,"requests":[%s]}`, at, calm, strings.Join(list, ","))
}

func TestOrder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{
			"the earlier request first, then the name, whatever the order on the line",
			[]string{requests("0s", request("n9", "a", "w/9"), request("n8", "a", "w/8")), requests("5s", request("n1", "a", "w/1")), `{"at":"10s"}`, `{"at":"20s"}`},
			[]string{"n8||n9 (zone a: next permit in 10s)", "||n9 (zone a: next permit in 5s) n1 (zone a: next permit in 5s)", "n9||n1 (zone a: next permit in 10s)", "n1||"},
		},
		{
			"two lines with the same time",
			[]string{requests("0s", request("n0", "a", "w/0")), requests("5s", request("n2", "a", "w/2")), requests("5s", request("n1", "a", "w/1")), `{"at":"10s"}`},
			[]string{"n0||", "||n2 (zone a: next permit in 5s)", "||n1 (zone a: next permit in 5s) n2 (zone a: next permit in 5s)", "n1||n2 (zone a: next permit in 10s)"},
		},
		{
			"no head-of-line blocking by a zone or a workload",
			[]string{requests("0s", request("n1", "a", "w/1"), request("n2", "a", "w/2"), request("n3", "b", "w/1"), request("n4", "b", "w/4"))},
			[]string{"n1 n4||n2 (zone a: next permit in 10s) n3 (workload w/1: next permit in 5m)"},
		},
		{
			"a slot is free at the instant of its end, not before",
			[]string{requests("0s", request("n1", "a", "w/1"), request("n2", "a", "w/2")), `{"at":"9.999s"}`, `{"at":"10s"}`},
			[]string{"n1||n2 (zone a: next permit in 10s)", "||n2 (zone a: next permit in 1ms)", "n2||"},
		},
		{
			"a workload's slot covers all zones",
			[]string{requests("0s", request("n1", "a", "w/1"), request("n2", "b", "w/1")), `{"at":"4m59s"}`, `{"at":"5m"}`},
			[]string{"n1||n2 (workload w/1: next permit in 5m)", "||n2 (workload w/1: next permit in 1s)", "n2||"},
		},
		{
			"patience ends at its instant, even if a slot is free then",
			[]string{`{"at":"0s","members":{"a":10},"wanting":{"a":10},"requests":[` + request("n1", "a", "w/1") + `]}`, `{"at":"14m59s"}`, `{"at":"15m","wanting":{"a":0}}`},
			[]string{"||n1 (fleet is full: 0/s)", "||n1 (fleet is full: 0/s)", "|n1|"},
		},
		{
			"withdraw comes before requests: a node begins again",
			[]string{requests("0s", request("n1", "a", "w/1"), request("n2", "a", "w/2"), request("n3", "a", "w/3")), `{"at":"5s","withdraw":["n2"],"requests":[` + request("n2", "a", "w/2") + `]}`, `{"at":"10s"}`},
			[]string{"n1||n2 (zone a: next permit in 10s) n3 (zone a: next permit in 10s)", "||n3 (zone a: next permit in 5s) n2 (zone a: next permit in 5s)", "n3||n2 (zone a: next permit in 10s)"},
		},
		{
			"a request that is repeated keeps its place, and one that was granted is a new one",
			[]string{requests("0s", request("n1", "a", "w/1"), request("n2", "a", "w/2")), requests("5s", request("n1", "a", "w/3"), request("n2", "a", "w/2")), `{"at":"10s"}`},
			[]string{"n1||n2 (zone a: next permit in 10s)", "||n2 (zone a: next permit in 5s) n1 (zone a: next permit in 5s)", "n2||n1 (zone a: next permit in 10s)"},
		},
		{
			"patience and withdraw on one line",
			[]string{`{"at":"0s","members":{"a":10},"wanting":{"a":10},"requests":[` + request("n1", "a", "w/1") + `]}`, `{"at":"15m","withdraw":["n1"]}`},
			[]string{"||n1 (fleet is full: 0/s)", "|n1|"},
		},
		{
			"counts of one zone leave those of the others",
			[]string{`{"at":"0s","members":{"a":10,"b":10},"wanting":{"a":6,"b":6},"requests":[` + request("n1", "a", "w/1") + `]}`, `{"at":"1s","wanting":{"b":0}}`, `{"at":"2s","wanting":{"a":5}}`},
			[]string{"||n1 (zone a is partial: 0/s)", "||n1 (zone a is partial: 0/s)", "n1||"},
		},
		{
			"a slot keeps the length it was granted with",
			[]string{`{"at":"0s","members":{"a":100},"wanting":{"a":60},"requests":[` + request("n1", "a", "w/1") + "," + request("n2", "a", "w/2") + `]}`, `{"at":"10s","wanting":{"a":1}}`, `{"at":"1m40s"}`},
			[]string{"n1||n2 (zone a: next permit in 1m40s)", "||n2 (zone a: next permit in 1m30s)", "n2||"},
		},
		{
			"a fleet of one zone without a name",
			[]string{`{"at":"0s","members":{"":10},"wanting":{"":6},"requests":[{"node":"n1","workload":"w/1"}]}`},
			[]string{"||n1 (the zone is partial: 0/s)"},
		},
	} {
		if got := queues(t, tt.lines...); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// Cases of the tests in pkg/controller/nodelifecycle of Kubernetes, as traces. Where a fleet differs on purpose, the name says
// so: guard/fleet/doc.go lists the differences. Each zone has one request, so it is granted if the zone has a rate.
func TestUpstream(t *testing.T) {
	type counts = map[string][2]int // members and those that want a stop, by zone
	upstream := fleet.DefaultRates()
	upstream.MinZone = 1
	for _, tt := range []struct {
		name    string
		rates   fleet.Rates
		zones   counts
		want    string // state and rate of each zone
		fleet   string
		granted string // zones
	}{
		{"Z1: an empty zone", upstream, counts{"a": {0, 0}}, "normal 0.1", "normal", "a"},
		{"Z2: one that is well", upstream, counts{"a": {1, 0}}, "normal 0.1", "normal", "a"},
		{"Z3: one of one", upstream, counts{"a": {1, 1}}, "full 0", "full", ""},
		{"Z3, but min_zone is 4: a single node says nothing", fleet.DefaultRates(), counts{"a": {1, 1}}, "normal 0.1", "normal", "a"},
		{"Z4: two of three are too few", upstream, counts{"a": {3, 2}}, "normal 0.1", "normal", "a"},
		{"Z5: three of three", upstream, counts{"a": {3, 3}}, "full 0", "full", ""},
		{"Z6: three of four", upstream, counts{"a": {4, 3}}, "partial 0", "normal", ""},
		{"Z7: two of five", upstream, counts{"a": {5, 2}}, "normal 0.1", "normal", "a"},
		{"Z7: three of five", upstream, counts{"a": {5, 3}}, "partial 0", "normal", ""},
		{"Z8: three of six", upstream, counts{"a": {6, 3}}, "normal 0.1", "normal", "a"},
		{"55 of 100, which float64 misses", upstream, counts{"a": {100, 55}}, "partial 0.01", "normal", "a"},
		{"54 of 100", upstream, counts{"a": {100, 54}}, "normal 0.1", "normal", "a"},
		{"rate: normal, any size", upstream, counts{"a": {1000, 549}}, "normal 0.1", "normal", "a"},
		{"rate: partial, size 50", upstream, counts{"a": {50, 49}}, "partial 0", "normal", ""},
		{"rate: partial, size 51", upstream, counts{"a": {51, 50}}, "partial 0.01", "normal", "a"},
		{"cluster: one zone and all down: nothing", upstream, counts{"a": {60, 60}}, "full 0", "full", ""},
		{"cluster: two zones, both down: nothing", upstream, counts{"a": {60, 60}, "b": {80, 80}}, "full 0, full 0", "full", ""},
		{"cluster: zone 1 down, zone 2 fine: zone 1 goes on, but at the secondary rate", upstream, counts{"a": {60, 60}, "b": {80, 0}}, "full 0.01, normal 0.1", "normal", "a b"},
		{"cluster: zone 1 down and small, zone 2 fine: nothing in zone 1, where upstream goes on", upstream, counts{"a": {50, 50}, "b": {80, 0}}, "full 0, normal 0.1", "normal", "b"},
		{"cluster: zone 1 down, zone 2 partial", upstream, counts{"a": {60, 60}, "b": {60, 59}}, "full 0.01, partial 0.01", "normal", "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := map[string]any{"at": "0s"}
			members, wanting, requests := map[string]int{}, map[string]int{}, []Request{}
			for zone, n := range tt.zones {
				members[zone], wanting[zone] = n[0], n[1]
				requests = append(requests, Request{Node: "n-" + zone, Zone: zone, Workload: "w/" + zone})
			}
			line["members"], line["wanting"], line["requests"] = members, wanting, requests
			text, err := json.Marshal(line)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if _, err := Run(t.Context(), tt.rates, bytes.NewReader(text), &out); err != nil {
				t.Fatal(err)
			}
			var d Decision
			if err := json.Unmarshal(out.Bytes(), &d); err != nil {
				t.Fatal(err)
			}
			var states []string
			for _, zone := range slices.Sorted(maps.Keys(d.Zones)) {
				states = append(states, fmt.Sprintf("%s %s", d.Zones[zone].State, d.Zones[zone].Rate))
			}
			granted := strings.ReplaceAll(strings.Join(d.Granted, " "), "n-", "")
			if got := strings.Join(states, ", "); got != tt.want || d.Fleet != tt.fleet || granted != tt.granted {
				t.Errorf("%s, the fleet is %s, granted %q; want %s, %s, %q", got, d.Fleet, granted, tt.want, tt.fleet, tt.granted)
			}
		})
	}
}

// The rate follows from the counts each time: a partial zone that grows from 50 to 51 has the secondary rate at once, whereas
// upstream keeps rate 0 until the state changes. A fleet that is no longer full goes on at once, too.
func TestUpstreamTransitions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{
			"Z7: two of five, then three of five, and two again",
			[]string{
				`{"at":"0s","members":{"a":5},"wanting":{"a":2},"requests":[` + request("n1", "a", "w/1") + `]}`,
				`{"at":"20s","wanting":{"a":3},"requests":[` + request("n2", "a", "w/2") + `]}`,
				`{"at":"21s","wanting":{"a":2}}`,
			},
			[]string{"n1||", "||n2 (zone a is partial: 0/s)", "n2||"},
		},
		{
			"a partial zone grows, and a full fleet gets a zone that is well",
			[]string{
				`{"at":"0s","members":{"a":50},"wanting":{"a":49},"requests":[` + request("n1", "a", "w/1") + `]}`,
				`{"at":"1s","members":{"a":51}}`,
				`{"at":"2m","wanting":{"a":51},"requests":[` + request("n2", "a", "w/2") + `]}`,
				`{"at":"2m1s","members":{"b":10}}`,
			},
			[]string{"||n1 (zone a is partial: 0/s)", "n1||", "||n2 (fleet is full: 0/s)", "n2||"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := queues(t, tt.lines...); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestBadTraces(t *testing.T) {
	for lines, want := range map[string]string{
		"":                                       "read trace: no line in it",
		"\n \n":                                  "read trace: no line in it",
		"{\"at\":\"1s\"}\n\n{\"at\":\"0s\"}":     "trace line 3: at 0s: earlier than the line before (1s)",
		`{}`:                                     `trace line 1: "at" is missing: the time since the start, such as "30s"`,
		`{"at":10}`:                              `trace line 1: duration 10: not a string such as "30s"`,
		`{"at":"10"}`:                            `trace line 1: duration "10": not like "30s" or "5m"`,
		`{"at":"-1s"}`:                           `trace line 1: "at" is negative`,
		`{"at":"2000000h"}`:                      `trace line 1: at 2000000h0m0s: more than a hundred years`,
		`{"at":"0s"} {"at":"1s"}`:                `trace line 1: more than one JSON value`,
		`{"at":"0s","zone":"a"}`:                 `trace line 1: json: unknown field "zone"`,
		`{"at":"0s","requests":[{"name":"a"}]}`:  `trace line 1: json: unknown field "name"`,
		`{"at":"0s","members":{"a":-1}}`:         `trace line 1: members: zone "a" has -1: want 0 to 1000000`,
		`{"at":"0s","wanting":{"a":1000001}}`:    `trace line 1: wanting: zone "a" has 1000001: want 0 to 1000000`,
		`{"at":"0s","wanting":{"A":1}}`:          `trace line 1: wanting: zone "A": want a name of a-z, 0-9, dots and hyphens`,
		`{"at":"0s","wanting":{"a":1.5}}`:        `trace line 1: wanting.a: want a whole number, not the number 1.5`,
		`[]`:                                     `trace line 1: want an object, not the array`,
		`{"at":"0s","members":[]}`:               `trace line 1: members: want an object, not the array`,
		`{"at":"0s","requests":[5]}`:             `trace line 1: requests.0: want an object, not the number`,
		`{"at":"0s","withdraw":"a"}`:             `trace line 1: withdraw: want an array, not the string`,
		`{"at":"0s","withdraw":["a/b"]}`:         `trace line 1: withdraw[0]: node "a/b": want a name of a-z, 0-9, dots and hyphens`,
		requests("0s", request("", "a", "w")):    `trace line 1: requests[0]: node "": want a name of a-z, 0-9, dots and hyphens`,
		requests("0s", request("n", "a/b", "w")): `trace line 1: requests[0]: zone "a/b": want a name of a-z, 0-9, dots and hyphens`,
		requests("0s", request("n", "a", "")):    `trace line 1: requests[0]: workload is missing`,
		requests("0s", request("m", "a", "w"), request("n", "a", "w")) + "\n" + requests("1s", request("n", "a", "v")): `trace line 2: requests[0]: node n waits for workload w in zone "a": withdraw that first`,
		strings.Repeat(" ", maxLine+1): "trace line 1: longer than 16 MiB",
	} {
		_, err := Run(t.Context(), fleet.DefaultRates(), strings.NewReader(lines), &bytes.Buffer{})
		if err == nil || err.Error() != want {
			t.Errorf("%.80s:\n%v\nwant\n%s", lines, err, want)
		}
	}
}

func TestSummary(t *testing.T) {
	_, sum := run(t,
		`{"at":"10s","members":{"a":100,"b":10},"wanting":{"b":9},"requests":[`+request("n1", "a", "w/1")+","+request("n2", "a", "w/1")+","+request("n3", "b", "w/3")+`]}`,
		`{"at":"5m10s"}`, requests("20m", request("n4", "b", "w/4"), request("n5", "b", "w/5")),
	)
	var got []string
	for _, e := range sum.Ended {
		got = append(got, fmt.Sprint(e.At, e.Node, e.Waited, e.Result))
	}
	if want := []string{"10s n1 0s granted", "5m10s n2 5m0s granted", "20m0s n3 19m50s out of patience", "20m0s n4 0s granted"}; !slices.Equal(squeeze(got), squeeze(want)) {
		t.Errorf("got %q, want %q", got, want)
	}
	if sum.Lines != 3 || sum.Length != 19*time.Minute+50*time.Second || sum.Granted() != 3 || sum.Waiting != 1 {
		t.Errorf("%+v", sum)
	}
}

// squeeze removes blanks.
func squeeze(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.ReplaceAll(s, " ", ""))
	}
	return out
}

// The rates bind, whatever the trace: never two permits of a zone within its slot or of a workload within its interval,
// none at rate 0, and every request is granted, held, withdrawn or out of patience.
func TestRatesBind(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var lines []string
		at, asked := time.Duration(0), map[string]Request{}
		for range 200 {
			l := map[string]any{"at": at.String()}
			zone := fmt.Sprintf("z%d", rnd.IntN(3))
			n := rnd.IntN(120)
			l["members"], l["wanting"] = map[string]int{zone: n}, map[string]int{zone: rnd.IntN(n + 2)}
			var list []Request
			for range rnd.IntN(4) {
				r := Request{fmt.Sprintf("n%d", len(asked)), zone, fmt.Sprintf("w/%d", rnd.IntN(20))}
				asked[r.Node] = r
				list = append(list, r)
			}
			l["requests"] = list
			if len(asked) > 0 && rnd.IntN(4) == 0 {
				l["withdraw"] = []string{fmt.Sprintf("n%d", rnd.IntN(len(asked)))}
			}
			text, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(text))
			at += time.Duration(rnd.Int64N(int64(20 * time.Second)))
		}
		out, _ := run(t, lines...)
		checkRates(t, asked, out)
	}
}

func checkRates(t *testing.T, asked map[string]Request, out []string) {
	t.Helper()
	zones, workloads, done := map[string]time.Duration{}, map[string]time.Duration{}, map[string]bool{}
	end := func(node string) {
		if done[node] {
			t.Fatalf("%s was served twice", node)
		}
		done[node] = true
	}
	for _, text := range out {
		var d Decision
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		now := time.Duration(d.At)
		for _, node := range d.Granted {
			r := asked[node]
			rate := d.Zones[r.Zone].Rate
			if end(node); rate == 0 || d.Fleet == "full" || now < zones[r.Zone] || now < workloads[r.Workload] {
				t.Fatalf("granted %+v at %s: zone %+v, its slot ends at %s, the workload's at %s", r, now, d.Zones[r.Zone], zones[r.Zone], workloads[r.Workload])
			}
			zones[r.Zone], workloads[r.Workload] = now+fleet.Slot(rate), now+fleet.DefaultRates().WorkloadInterval
		}
		for _, node := range d.Patience {
			end(node)
		}
		for _, h := range d.Held {
			if done[h.Node] || h.Reason == "" {
				t.Fatalf("%s is held: %q", h.Node, h.Reason)
			}
		}
	}
}

// Any input is an error with the number of its line, or a trace of which every line is decided.
func FuzzTrace(f *testing.F) {
	for _, line := range []string{
		`{"at":"10s","members":{"z1":12},"wanting":{"z1":7},"requests":[{"node":"n1","zone":"z1","workload":"shop/web"}],"withdraw":["n2"]}`,
		"{\"at\":\"0s\"}\n{\"at\":\"1s\",\"wanting\":{\"\":4}}", `{"at":null}`, `[]`, "", "\x00", `{"at":"0s","members":null,"requests":null}`, `{"AT":"1h"}`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out bytes.Buffer
		sum, err := Run(t.Context(), fleet.DefaultRates(), strings.NewReader(text), &out)
		if err != nil && !strings.HasPrefix(err.Error(), "trace line ") && !strings.HasPrefix(err.Error(), "read trace: ") {
			t.Fatal(err)
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); err == nil && n != sum.Lines {
			t.Fatalf("%d decisions for %d lines", n, sum.Lines)
		}
		for line := range bytes.Lines(out.Bytes()) {
			var d Decision
			if err := json.Unmarshal(line, &d); err != nil {
				t.Fatal(err)
			}
		}
	})
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }
func (broken) Read([]byte) (int, error)  { return 0, errBroken }

func TestBrokenStreams(t *testing.T) {
	if _, err := Run(t.Context(), fleet.DefaultRates(), strings.NewReader(`{"at":"0s"}`), broken{}); !errors.Is(err, errBroken) {
		t.Errorf("write: %v", err)
	}
	if _, err := Run(t.Context(), fleet.DefaultRates(), broken{}, &bytes.Buffer{}); !errors.Is(err, errBroken) {
		t.Errorf("read: %v", err)
	}
}
