package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/fleet"
)

const connection = `fleet = "edge-eu"
endpoints = ["https://etcd-1:2379", "https://[2001:db8::1]:2379"]
tls = {ca = "/ca.pem", cert = "/cert.pem", key = "/key.pem"}
`

const every = `fleet = "edge-eu"
zone = "ring-1"
node = "node.7"
endpoints = ["https://etcd-1:2379"]
[tls]
ca = "/ca.pem"
cert = "/cert.pem"
key = "/key.pem"
insecure = false
[rates]
rate = 0.2
secondary_rate = 0.02
large_zone = 100
unhealthy = 0.6
min_zone = 5
workload_interval = "10m"
patience = "20m"
`

// Every key has an effect.
func TestEveryKey(t *testing.T) {
	want := fleet.Config{
		Fleet: "edge-eu", Zone: "ring-1", Node: "node.7", Endpoints: []string{"https://etcd-1:2379"},
		TLS: fleet.TLS{CA: "/ca.pem", Cert: "/cert.pem", Key: "/key.pem"},
		Rates: fleet.Rates{
			Rate: 200_000, Secondary: 20_000, LargeZone: 100, Unhealthy: 600_000, MinZone: 5,
			WorkloadInterval: 10 * time.Minute, Patience: 20 * time.Minute,
		},
	}
	cfg, err := Parse("fleet.toml", every)
	if err != nil || !reflect.DeepEqual(cfg, want) {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, k := range allKeys(new(fleet.Config)) {
		_, name, _ := strings.Cut("."+k.Name, ".")
		name = name[strings.LastIndexByte(name, '.')+1:]
		if !strings.Contains(every, "\n"+name+" =") && !strings.HasPrefix(every, name+" =") {
			t.Errorf("%s is not tested", k.Name)
		}
	}
}

func TestDefaults(t *testing.T) {
	cfg, err := Parse("fleet.toml", connection)
	if err != nil || cfg.Rates != fleet.DefaultRates() || cfg.Zone != "" || cfg.Node != "" || len(cfg.Endpoints) != 2 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, endpoint := range []string{"http://127.0.0.1:2379", "http://[::1]:2379", "http://[::ffff:127.0.0.1]:2379"} {
		text := fmt.Sprintf("fleet = 'a'\nendpoints = [%q]\ntls.insecure = true\n", endpoint)
		if cfg, err := Parse("fleet.toml", text); err != nil || !cfg.TLS.Insecure {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	const (
		url  = `must be a URL of a host and a port (hint: for example ["https://etcd-1.example.com:2379"])`
		name = `must be a name (hint: want a-z, 0-9, dots and hyphens, for example "ring-1")`
		pem  = `must be an absolute path (hint: for example "/etc/criguard/fleet.pem")`
		slot = `must be at most 0.5 (hint: a slot is at least 2 s long, so 0.5 is the highest rate)`
	)
	for text, want := range map[string]string{
		"zone = 'Ring'":      `:4: zone = "Ring": ` + name,
		"node = 'a/b'":       `:4: node = "a/b": ` + name,
		"zone = 1":           `:4: zone = 1: must be a string (hint: write it with quotes)`,
		"zonne = 'a'":        `:4: zonne: unknown key (hint: did you mean zone?)`,
		"patience = '5m'":    `:4: patience: unknown key (hint: did you mean [rates] patience?)`,
		"colour = 1":         `:4: colour: unknown key (hint: the keys here are fleet, zone, node, endpoints, tls, rates)`,
		"[rate]\na = 1":      `:4: rate: unknown key (hint: did you mean [rates]?)`,
		"[ratse]\nrate = 1":  `:4: ratse: unknown key (hint: did you mean [rates]?)`,
		"rates = 1":          `:4: rates = 1: must be a table (hint: write [rates] on a line of its own)`,
		"[rates]\nrat = 0.1": `:5: rates.rat: unknown key (hint: did you mean [rates] rate?)`,
		"[rates]\nca = 1":    `:5: rates.ca: unknown key (hint: did you mean [tls] ca?)`,
		"[rates]\nrate.a=1":  `:5: rates.rate = {…}: must be a number (hint: write it without quotes, for example 0.1)`,

		"[rates]\nrate = '0.1'":                 `:5: rates.rate = "0.1": must be a number (hint: write it without quotes, for example 0.1)`,
		"[rates]\nrate = 0.0":                   `:5: rates.rate = 0: must be at least 0.000001 (hint: a slot is at least 2 s long, so 0.5 is the highest rate)`,
		"[rates]\nrate = 1":                     `:5: rates.rate = 1: ` + slot,
		"[rates]\nrate = nan":                   `:5: rates.rate = NaN: must have at most six decimals`,
		"[rates]\nrate = inf":                   `:5: rates.rate = +Inf: ` + slot,
		"[rates]\nrate = 0.1234567":             `:5: rates.rate = 0.1234567: must have at most six decimals`,
		"[rates]\nsecondary_rate = 0.6":         `:5: rates.secondary_rate = 0.6: ` + slot,
		"[rates]\nsecondary_rate = 0.2":         `:5: rates.secondary_rate = 0.2: must be at most rates.rate, which is 0.1 (hint: it is the rate of zones in trouble)`,
		"[rates]\nsecondary_rate = -1":          `:5: rates.secondary_rate = -1: must be at least 0 (hint: a slot is at least 2 s long, so 0.5 is the highest rate)`,
		"[rates]\nunhealthy = 55":               `:5: rates.unhealthy = 55: must be at most 1 (hint: 0.55 means 55 % of the members)`,
		"[rates]\nmin_zone = 0":                 `:5: rates.min_zone = 0: must be at least 1`,
		"[rates]\nmin_zone = 0.5":               `:5: rates.min_zone = 0.5: must be a whole number (hint: write it without quotes and without a unit)`,
		"[rates]\nlarge_zone = 1000001":         `:5: rates.large_zone = 1000001: must be at most 1000000`,
		"[rates]\nworkload_interval = '1s'":     `:5: rates.workload_interval = "1s": must be at least 2s`,
		"[rates]\nworkload_interval = '2500ms'": `:5: rates.workload_interval = "2500ms": must be whole seconds (hint: it is the time of a lease in etcd)`,
		"[rates]\npatience = '59s'":             `:5: rates.patience = "59s": must be at least 1m`,
		"[rates]\npatience = '25h'":             `:5: rates.patience = "25h": must be at most 24h`,
		"[rates]\npatience = 15":                `:5: rates.patience = 15: must be a string (hint: write it with quotes and a unit: "15s")`,
		"[rates]\npatience = '15'":              `:5: rates.patience = "15": must have a unit (hint: "15s" means seconds; the units are ms, s, m and h)`,

		"zone = ":               `:4: zone: expected value but found '\n' instead (hint: strings need quotes, for example zone = "ring-1"; tables need brackets, for example [rates])`,
		"a = [[[[[[[[[[[[[[[[[": `:4: lists and tables must have at most 16 levels (hint: no criguard key is nested this deeply)`,
		"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r = 1": `:4: keys must have at most 16 parts (hint: no criguard key is nested this deeply)`,
	} {
		checkMistake(t, connection+text+"\n", want)
	}
	for text, want := range map[string]string{
		"fleet = ''":                         ":1: fleet: must be set (hint: for example fleet = \"edge-eu\")",
		"fleet = 'ä'":                        ":1: fleet = \"ä\": " + name,
		"endpoints = 'https://a:1'":          ":2: endpoints = \"https://a:1\": must be a list (hint: write it as [\"https://a:1\"])",
		"endpoints = []":                     ":2: endpoints: must be set (hint: for example endpoints = [\"https://etcd-1.example.com:2379\"])",
		"endpoints = [1]":                    ":2: endpoints[1] = 1: must be a string (hint: write it with quotes)",
		"endpoints = ['a:1']":                ":2: endpoints[1] = \"a:1\": " + url,
		"endpoints = ['https://a']":          ":2: endpoints[1] = \"https://a\": " + url,
		"endpoints = ['https://a:0']":        ":2: endpoints[1] = \"https://a:0\": " + url,
		"endpoints = ['https://a:1/x']":      ":2: endpoints[1] = \"https://a:1/x\": " + url,
		"endpoints = ['https://u:p@a:1']":    ":2: endpoints[1] = \"https://u:p@a:1\": " + url,
		"endpoints = ['https://a:1', 'b']":   ":2: endpoints[2] = \"b\": " + url,
		"endpoints = ['http://127.0.0.1:1']": ":2: endpoints[1] = \"http://127.0.0.1:1\": must begin with https:// (hint: tls.insecure = true allows plain text to loopback addresses)",
		"endpoints = [" + strings.Repeat("'https://a:1',", 17) + "]":        ":2: endpoints = […]: must have at most 16 elements (hint: for example [\"https://etcd-1.example.com:2379\"])",
		"tls = {cert = '/cert', key = '/key'}":                              ":3: tls.ca: must be set (hint: the certificates that etcd's certificate is checked with)",
		"tls = {ca = '/ca', key = '/key'}":                                  ":3: tls.cert: must be set (hint: the node's certificate)",
		"tls = {ca = '/ca', cert = '/cert'}":                                ":3: tls.key: must be set (hint: the key of the node's certificate)",
		"tls = {ca = 'ca', cert = '/cert', key = '/key'}":                   ":3: tls.ca = \"ca\": " + pem,
		"tls = {ca = '/ca', cert = '/cert', key = '/key', insecure = 'no'}": ":3: tls.insecure = \"no\": must be true or false (hint: write it without quotes)",
	} {
		lines := strings.SplitAfter(connection, "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, strings.SplitAfter(text, " ")[0]) {
				lines[i] = text + "\n"
			}
		}
		checkMistake(t, strings.Join(lines, ""), want)
	}
	// Lines are those of the keys, however they are written.
	checkMistake(t, connection+"['rates'] # large\n\"rate\" = 7\n", ":5: rates.rate = 7: "+slot)
	checkMistake(t, connection+"zone = \"\"\"\nnode = 1\"\"\"\nnode = 2\n[rates.rate]\n", `:4: zone = "node = 1": `+name+`
fleet.toml:6: node = 2: must be a string (hint: write it with quotes)
fleet.toml:7: rates.rate = {…}: must be a number (hint: write it without quotes, for example 0.1)`)
	insecure := "fleet = 'a'\nendpoints = ['http://127.0.0.1:1']\ntls.insecure = true\n"
	checkMistake(t, strings.ReplaceAll(insecure, "http:", "https:"), `:2: endpoints[1] = "https://127.0.0.1:1": must begin with http:// because tls.insecure is set`)
	checkMistake(t, strings.ReplaceAll(insecure, "127.0.0.1", "etcd-1"), `:2: endpoints[1] = "http://etcd-1:1": must be a loopback address because tls.insecure is set (hint: 127.0.0.1 or [::1]; for another host, set tls.ca, tls.cert and tls.key: plain text shows the fleet to the network)`)
	checkMistake(t, insecure+"tls.ca = '/ca'\n", `:3: tls.insecure = true: must not be set with a certificate (hint: delete it, or ca, cert and key)`)
}

func checkMistake(t *testing.T, text, want string) {
	t.Helper()
	_, err := Parse("fleet.toml", text)
	if err == nil || err.Error() != "fleet.toml"+want || !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("%s\n%v\nwant fleet.toml%s", text, err, want)
	}
}

// All mistakes are reported at once, in the order of the lines.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Parse("fleet.toml", "zone = 1\n[rates]\npatience = 1\nrate = 7\n")
	var got []string
	for _, e := range schema.Errors(err) {
		got = append(got, fmt.Sprint(e.Line, " ", e.Key))
	}
	if strings.Join(got, ", ") != "1 zone, 3 rates.patience, 4 rates.rate, 0 fleet, 0 endpoints, 0 tls.ca, 0 tls.cert, 0 tls.key" {
		t.Errorf("%v", got)
	}
}

// The rates alone need no connection, but a mistake anywhere is one.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if cfg, err := Load(write("every.toml", "\ufeff"+every)); err != nil || cfg.Zone != "ring-1" {
		t.Errorf("%+v, %v", cfg, err)
	}
	if r, err := LoadRates(write("rates.toml", "[rates]\nlarge_zone = 3\n")); err != nil || r.LargeZone != 3 || r.MinZone != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := LoadRates(write("bad.toml", "zone = 1\n")); !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("%v", err)
	}
	missing := filepath.Join(dir, "missing.toml")
	_, err := LoadRates(missing)
	_, full := Load(missing)
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(full, os.ErrNotExist) {
		t.Errorf("a file that is missing: %v, %v", err, full)
	}
}

// Any text is a configuration or a list of mistakes with lines in the text.
func FuzzParse(f *testing.F) {
	for line := range strings.Lines(every) { // the fuzzer mutates and minimizes small inputs faster
		f.Add(line)
	}
	for _, text := range []string{"", "\x00", "[", "[[rates]]", "rates.rate = 1e400", "a=\"\"\"\n[[", "endpoints = [[{a.b = 1}]]", "'a\\'.b = 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := Parse("fuzz", text)
		if err == nil {
			if r := cfg.Rates; cfg.Fleet == "" || len(cfg.Endpoints) == 0 || fleet.Slot(r.Rate) < fleet.MinSlot || r.MinZone < 1 || r.Patience <= 0 || r.Secondary > r.Rate {
				t.Fatalf("%+v", cfg)
			}
			return
		}
		for _, e := range schema.Errors(err) {
			if e.File != "fuzz" || e.Rule == "" || e.Line < 0 || e.Line > 2+strings.Count(text, "\n") {
				t.Fatalf("%#v", e)
			}
		}
	})
}
