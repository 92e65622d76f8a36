package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/fleetcmd"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	fleetsim "github.com/criguard/criguard/guard/fleet/simulate"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

const jsonDoc = "../../docs/json.md"

var update = flag.Bool("update", false, "write docs/json.md")

// printed lists what criguard prints as JSON, and the type of each value.
var printed = []struct {
	where string
	value reflect.Type
}{
	{"`status -o json`", reflect.TypeFor[api.Status]()},
	{"`rank -o json`", reflect.TypeFor[api.Ranking]()},
	{"`history -o json`", reflect.TypeFor[api.HistoryList]()},
	{"`explain -o json`", reflect.TypeFor[words.Explanation]()},
	{"`check -o json`", reflect.TypeFor[checkReport]()},
	{"`prune -o json`", reflect.TypeFor[api.PruneResult]()},
	{"`images -o json`", reflect.TypeFor[api.ImageList]()},
	{"`reload -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`pause -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`resume -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`drain -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`undrain -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`stop -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`protect -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`unprotect -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`fleet status -o json`", reflect.TypeFor[fleetcmd.Status]()},
	{"`fleet check -o json`", reflect.TypeFor[fleetcmd.Check]()},
	{"`fleet pause -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`fleet resume -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`fleet forget -o json`", reflect.TypeFor[api.CommandAnswer]()},
	{"`version -o json`", reflect.TypeFor[api.Version]()},
	{"a command with `-o json` that fails", reflect.TypeFor[api.Error]()},
	{"each line of `simulate`", reflect.TypeFor[simulate.Pass]()},
	{"each line of `fleet simulate`", reflect.TypeFor[fleetsim.Decision]()},
	{"each line of `record`", reflect.TypeFor[trace.Line]()},
	{"each line of `history.jsonl`", reflect.TypeFor[api.Pass]()},
	{"`conditions.json`", reflect.TypeFor[api.Conditions]()},
	{"the input of a hook", reflect.TypeFor[hook.Payload]()},
	{"`/v1/samples` on the control socket", reflect.TypeFor[api.SampleList]()},
	{"`/v1/windows` on the control socket", reflect.TypeFor[api.WindowList]()},
	{"`/v1/config` on the control socket", reflect.TypeFor[api.Settings]()},
	{"`/v1/drain` on the control socket", reflect.TypeFor[api.DrainPlan]()},
}

const jsonIntro = `# JSON

This page describes all JSON that criguard prints, serves and writes for other programs. It is generated from the source;
a test compares the output of every command with it.

Within ` + "`criguard.io/v1`" + `, criguard never removes or renames a field, and never changes its type, its unit or its meaning. A
new version may add fields, and names to the lists of names: ignore the ones that you do not know. An incompatible
change gets another ` + "`apiVersion`" + `. The state files in ` + "`/run/criguard`" + ` and the image ledger are not part of this.

- Names of fields are in snake_case, with one exception: ` + "`apiVersion`" + `, which Kubernetes spells so.
- A **duration** is a string such as ` + "`\"1.5s\"`, `\"250ms\"` or `\"1h30m0s\"`" + `: numbers with the units h, m, s, ms, µs and ns.
  Ages and remaining times are rounded to milliseconds.
- A **time** is a string in RFC 3339, such as ` + "`\"2026-01-02T15:04:05.678Z\"`" + `.
- The unit **signal** means the unit of the signal: bytes, inodes or tasks, or millionths of the time for ` + "`memory.stall`" + `
  and ` + "`io.stall`" + `. The unit **pool** means bytes, inodes or tasks.
- An **optional** field is left out when it is empty, zero, false or unknown.
- criguard does not escape ` + "`<`, `>` and `&`" + `. It escapes characters that a terminal would act on.

| where | value |
|---|---|
`

// docWriter writes the tables of types.
type docWriter struct {
	t     *testing.T
	out   strings.Builder
	queue []reflect.Type
	asts  map[string]map[string]*ast.TypeSpec // by package path and type
	docs  map[*ast.TypeSpec]string
}

// parse reads the doc comments of a package.
func (w *docWriter) parse(pkg string) map[string]*ast.TypeSpec {
	if types, ok := w.asts[pkg]; ok {
		return types
	}
	types := map[string]*ast.TypeSpec{}
	files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(pkg, "github.com/criguard/criguard/"), "*.go"))
	if err != nil || len(files) == 0 {
		w.t.Fatalf("%s: %v", pkg, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok {
					types[ts.Name.Name] = ts
					w.docs[ts] = g.Doc.Text()
				}
			}
		}
	}
	w.asts[pkg] = types
	return types
}

// prefixes distinguish types of the same name in the document, by the last parts of their package's path.
var prefixes = map[string]string{
	"guard/hook": "Hook", "guard/trace": "Trace", "guard/simulate": "Simulated", "guard/config": "Config", "criguard/reclaim": "Reclaim",
	"guard/fleet": "Fleet", "fleet/agent": "Agent", "fleet/simulate": "FleetSimulated", "internal/fleetcmd": "Fleet",
}

// nameOf returns the name of a type in the document.
func nameOf(t reflect.Type) string {
	dir, pkg := filepath.Split(t.PkgPath())
	return prefixes[filepath.Base(dir)+"/"+pkg] + strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
}

func (w *docWriter) link(t reflect.Type) string {
	if !slices.Contains(w.queue, t) {
		w.queue = append(w.queue, t)
	}
	return fmt.Sprintf("[%s](#%s)", nameOf(t), strings.ToLower(nameOf(t)))
}

// typeOf returns the JSON type of a Go type.
func (w *docWriter) typeOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return w.typeOf(t.Elem())
	}
	switch t {
	case reflect.TypeFor[reclaim.Duration]():
		return "duration"
	case reflect.TypeFor[time.Time]():
		return "time"
	case reflect.TypeFor[policy.Conditions]():
		return "list of string"
	case reflect.TypeFor[trace.Quantity]():
		return "integer"
	case reflect.TypeFor[fleet.Millionths]():
		return "number"
	case reflect.TypeFor[time.Duration]():
		w.t.Errorf("a time.Duration is printed as a number")
	}
	if t.Implements(reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()) {
		return "string"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Slice:
		return "list of " + w.typeOf(t.Elem())
	case reflect.Map:
		return "object of " + w.typeOf(t.Elem())
	case reflect.Interface:
		return "any"
	case reflect.Struct:
		return w.link(t)
	}
	w.t.Fatalf("%s: no JSON type", t)
	return ""
}

// fieldName matches the name of every field but apiVersion.
var fieldName = regexp.MustCompile(`^[a-z0-9_]+$`)

// fields writes a row for each field of a struct, with those of embedded structs in place.
func (w *docWriter) fields(t reflect.Type) {
	spec := w.parse(t.PkgPath())[t.Name()]
	comments := map[string]string{}
	for _, f := range spec.Type.(*ast.StructType).Fields.List {
		for _, n := range f.Names {
			comments[n.Name] = strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			w.fields(f.Type)
			continue
		case !f.IsExported() || name == "-":
			continue
		}
		typ, unit, meaning := w.typeOf(f.Type), f.Tag.Get("unit"), comments[f.Name]
		switch {
		case opts != "":
			typ += ", optional"
		case f.Type.Kind() == reflect.Pointer:
			typ += ", or null"
		}
		switch {
		case name == "apiVersion":
			meaning = "`criguard.io/v1`"
		case !fieldName.MatchString(name):
			w.t.Errorf("%s.%s: the field %q is not in snake_case", nameOf(t), f.Name, name)
		}
		if meaning == "" {
			w.t.Errorf("%s.%s has no comment", nameOf(t), f.Name)
		}
		if unit == "" && strings.HasSuffix(f.Type.String(), "int64") && f.Type.Kind() != reflect.Uint64 {
			w.t.Errorf("%s.%s has no tag for its unit", nameOf(t), f.Name)
		}
		fmt.Fprintf(&w.out, "| `%s` | %s | %s | %s |\n", name, typ, strings.TrimPrefix(unit, "-"), strings.ReplaceAll(meaning, "|", "\\|"))
	}
}

// docs/json.md is what the types say. `make json` writes it.
func TestJSONDocIsCurrent(t *testing.T) {
	w := &docWriter{t: t, asts: map[string]map[string]*ast.TypeSpec{}, docs: map[*ast.TypeSpec]string{}}
	w.out.WriteString(jsonIntro)
	for _, p := range printed {
		fmt.Fprintf(&w.out, "| %s | %s |\n", p.where, w.link(p.value))
	}
	for written := 0; written < len(w.queue); written++ { //nolint:intrange // writing a type adds those of its fields
		typ := w.queue[written]
		doc := nameOf(typ) + strings.TrimPrefix(w.docs[w.parse(typ.PkgPath())[typ.Name()]], typ.Name())
		fmt.Fprintf(&w.out, "\n## %s\n\n%s\n| field | type | unit | meaning |\n|---|---|---|---|\n", nameOf(typ), doc)
		w.fields(typ)
	}
	if *update {
		if err := os.WriteFile(jsonDoc, []byte(w.out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, jsonDoc) != w.out.String() {
		t.Error("docs/json.md differs from the types: run `make json`")
	}
}
