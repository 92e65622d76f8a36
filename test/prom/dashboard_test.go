package prom_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dashboard is the part of a Grafana dashboard that is checked here.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []struct {
		ID         int
		Type       string
		Title      string
		GridPos    struct{ H, W, X, Y int }
		Datasource struct{ Type, UID string }
		Targets    []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Definition string
		}
	}
	Annotations struct{ List []struct{ Name, Expr string } }
}

// Grafana can read the dashboard, all its queries are valid PromQL, and they use existing metrics.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../docs/criguard-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title != "criguard" || d.UID == "" || d.SchemaVersion < 30 {
		t.Errorf("dashboard %q, %q, schema version %d", d.Title, d.UID, d.SchemaVersion)
	}
	queries := map[string]string{}
	names, ids, taken := documented(t), map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %q: id %d twice, or no title", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok || at[0] >= 24 {
					t.Fatalf("panel %q is over %q, or beside the grid", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" || p.Datasource.Type != "prometheus" {
			t.Errorf("panel %q: %d queries, data source %+v", p.Title, len(p.Targets), p.Datasource)
		}
		for _, q := range p.Targets {
			queries[p.Title+" "+q.RefID] = q.Expr
		}
	}
	for _, a := range d.Annotations.List {
		queries["annotation "+a.Name] = a.Expr
	}
	for _, v := range d.Templating.List {
		if bad := unknown(names, v.Definition); len(bad) > 0 {
			t.Errorf("variable %s names metrics that are none: %v", v.Name, bad)
		}
	}
	if len(queries) < 20 {
		t.Fatalf("only %d queries", len(queries))
	}
	checkQueries(t, names, queries)
}

// checkQueries lets promtool parse the queries, as rules.
func checkQueries(t *testing.T, names map[string]bool, queries map[string]string) {
	t.Helper()
	fill := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$instance", ".*", "$signal", ".*")
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for name, query := range queries {
		if bad := unknown(names, query); len(bad) > 0 || !strings.Contains(query, "criguard_") {
			t.Errorf("%s: %s names metrics that are none (%v), or none of criguard's", name, query, bad)
		}
		expr, err := json.Marshal(fill.Replace(query))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(expr), "$") {
			t.Errorf("%s: %s has a variable that is none", name, query)
		}
		fmt.Fprintf(&rules, "  - record: dashboard:query:%d\n    expr: %s\n", strings.Count(rules.String(), "record"), expr)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", file)
}
