package config

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// docRow is a row of a table in the documentation, under a heading.
type docRow struct {
	heading string
	cells   []string
}

func readDocs(t *testing.T) (rows []docRow) {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	for line := range strings.Lines(string(text)) {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(h)
		}
		if !strings.HasPrefix(line, "|") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, docRow{heading, cells})
	}
	return rows
}

// The documentation lists every key under its table, with its default.
func TestConfigDocsHaveEveryKey(t *testing.T) {
	documented := map[string]string{}
	for _, r := range readDocs(t) {
		switch table := strings.Trim(r.heading, "`[]"); {
		case len(r.cells) == 3 && table == r.heading && r.heading == "At the top":
			documented[strings.Trim(r.cells[0], "`")] = strings.Trim(r.cells[1], "`")
		case len(r.cells) == 3 && table != r.heading:
			documented[schema.JoinKey(table, strings.Trim(r.cells[0], "`"))] = strings.Trim(r.cells[1], "`")
		}
	}
	defaults := map[string]string{}
	for _, l := range Default().lines() {
		table, name := schema.SplitKey(l.key)
		switch {
		case l.key == "" || strings.HasPrefix(l.key, TableHard):
		case name == "burst":
			defaults[table] = "{burst = " + inTOML(l.value)
		case name == "every":
			defaults[table] += ", every = " + inTOML(l.value) + "}"
		default:
			defaults[l.key] = inTOML(l.value)
		}
	}
	if len(defaults) < 45 {
		t.Fatalf("only %d keys", len(defaults))
	}
	for _, key := range sortedKeys(defaults) {
		if got, ok := documented[key]; !ok {
			t.Errorf("%s is not documented", key)
		} else if got != defaults[key] {
			t.Errorf("%s is documented as %s, and is %s", key, got, defaults[key])
		}
	}
	for _, key := range sortedKeys(documented) {
		if _, ok := defaults[key]; !ok && !strings.HasSuffix(key, "---") && !strings.HasSuffix(key, "key") {
			t.Errorf("%s is documented, and is no key", key)
		}
	}
}

func TestConfigDocsHaveEverySignal(t *testing.T) {
	defaults := map[string]string{}
	for _, r := range readDocs(t) {
		if r.heading == "Thresholds" && len(r.cells) == 3 {
			defaults[strings.Trim(r.cells[0], "`")] = r.cells[2]
		}
	}
	hard := policy.DefaultHard()
	for _, s := range policy.Signals() {
		got, ok := defaults[s.String()]
		value, named := hard[s.String()]
		if !ok || named && got != "`\""+value+"\"`" || !named && strings.HasPrefix(got, "`") {
			t.Errorf("%s: documented %v, as %s", s, ok, got)
		}
	}
}

// The documentation also names all tables, rules, rank keys, choices and annotations.
func TestConfigDocsHaveEveryWord(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{
		AnnotationPriority, AnnotationProtect, AnnotationRequest, AnnotationGrace, AnnotationStorage,
		string(ModeObserve), string(DirectKillHardMemory), string(DirectKillFallback), string(DirectKillNever), string(AdmissionStop),
		string(PruneAuto), string(PruneAlways), string(PruneNever), DefaultPath, "namespace", "name", "labels", "value", "ephemeral_storage",
	}
	for _, p := range places() {
		if strings.HasPrefix(p.text, "[") && strings.HasSuffix(p.text, "]") && !strings.HasPrefix(p.text, "[budget.") {
			words = append(words, p.text)
		}
	}
	for k := policy.KeyCulprit; k <= policy.KeyQoS; k++ {
		words = append(words, k.String())
	}
	for _, w := range words {
		if !regexp.MustCompile("[`\" ]" + regexp.QuoteMeta(w) + "[`\" ]").Match(text) {
			t.Errorf("%s is missing", w)
		}
	}
}

// The documentation translates the kubelet's names in the same way as the error hints.
func TestConfigDocsOfTheKubelet(t *testing.T) {
	documented := map[string]bool{}
	for _, r := range readDocs(t) {
		if r.heading != "Coming from a kubelet" || !strings.HasPrefix(r.cells[0], "`") {
			continue
		}
		here, ok := kubeletNames[schema.Plain(strings.Trim(r.cells[0], "`"))]
		isKey := strings.HasPrefix(here, "[")
		documented[here] = true
		if !ok || isKey && !strings.HasPrefix(r.cells[1], "`"+here+"`") || !isKey && r.cells[1] != here {
			t.Errorf("%v, and errors say %q", r.cells, here)
		}
	}
	for _, here := range slices.Sorted(maps.Values(kubeletNames)) {
		if strings.HasPrefix(here, "[") && !documented[here] && here != "[eviction] interval" {
			t.Errorf("%s is not documented", here)
		}
	}
}

// The documentation's own examples are valid.
func TestConfigDocsExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) != 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		if cfg := goodConfig(t, string(e[1])); len(cfg.Diff(Default())) == 0 || len(cfg.Notes()) > 0 {
			t.Errorf("changes %v, notes %v:\n%s", cfg.Diff(Default()), cfg.Notes(), e[1])
		}
	}
}
