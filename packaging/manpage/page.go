package main

import (
	"regexp"
	"strings"
)

// The text before and after the reference. mandoc requires a date. It is fixed, because the build
// date would add no information and would change the page each time.
const (
	head = `.\" Made of docs/configuration.md by "make man"; change that.
.TH CRIGUARD.TOML 5 2026-11-21 "criguard" "File Formats"
.SH NAME
criguard.toml \- configuration of criguard
.SH SYNOPSIS
.I /etc/criguard/config.toml
.br
.I /usr/lib/criguard/config.d/*.toml
.br
.I /etc/criguard/config.d/*.toml
.br
.I /run/criguard/config.d/*.toml
.SH DESCRIPTION
`
	foot = `.SH FILES
.TP
.I /etc/criguard/config.toml
The configuration. Without it, the defaults are in force.
.TP
.I /usr/lib/criguard/config.d/*.toml
.TQ
.I /etc/criguard/config.d/*.toml
.TQ
.I /run/criguard/config.d/*.toml
Drop\-ins; DROP\-INS above says which of them overrides another.
.TP
.I /etc/crictl.yaml
Names the CRI socket, unless [runtime] endpoint does.
.TP
.I /etc/criguard/fleet.toml
The configuration of the fleet\(aqs agent, which has keys of its own.
.TP
.I /usr/share/doc/criguard/config.example.toml
With the package: an example with every key.
.SH ENVIRONMENT
No variable sets a key.
.TP
.B RUNTIME_DIRECTORY
The run directory, where the history is unless [history] dir names another one; systemd sets it for the service.
.SH EXIT STATUS
.B criguard check
exits with 0 if the configuration is valid, with 1 if the node meets one of its hard thresholds now, and with 2 if it is invalid.
.B criguard run
exits with 2 if it is invalid, and
.B criguard reload
does, too, while the service keeps the configuration in force.
.SH EXAMPLES
.TP
.B criguard check
Check the files that the service reads, and print every key in force.
.TP
.B criguard check \-\-show\-origin
Print each key with the file and the line that set it.
.TP
.B criguard check \-\-offline try.toml
Check another file without looking at the node.
.PP
A configuration that only logs, as a first step on a node:
.PP
.RS 4
.EX
mode = "observe"
.EE
.RE
.PP
A drop\-in that never stops the pods of a namespace, and keeps the images of a registry:
.PP
.RS 4
.EX
[[protect]]
namespace = "monitoring"

[images]
keep = ["registry.example.com/base/*"]
.EE
.RE
.SH SEE ALSO
.BR criguard (1)
`
)

// page converts the reference to a man page.
func page(markdown string) string {
	w := writer{}
	w.b.WriteString(head)
	for line := range strings.Lines(markdown) {
		w.line(strings.TrimRight(line, " \t\n"))
	}
	w.end()
	w.b.WriteString(foot)
	return needless.ReplaceAllString(w.b.String(), "$1")
}

// needless matches a paragraph macro right after a section heading, which already starts a
// paragraph.
var needless = regexp.MustCompile(`(?m)^(\.SH .*\n)\.PP\n`)

type writer struct {
	b      strings.Builder
	code   bool       // in a code block
	text   []string   // of the current paragraph or list item
	begin  string     // its first macro
	header []string   // of the current table
	rows   [][]string // its rows
}

func (w *writer) line(line string) {
	if w.code {
		if w.code = !strings.HasPrefix(line, "```"); w.code {
			w.b.WriteString(escape(line) + "\n")
		} else {
			w.b.WriteString(".EE\n.RE\n")
		}
		return
	}
	if !strings.HasPrefix(line, "|") {
		w.table()
	}
	marker := item.FindString(line)
	switch {
	case strings.HasPrefix(line, "```"):
		w.end()
		w.b.WriteString(".PP\n.RS 4\n.EX\n")
		w.code = true
	case strings.HasPrefix(line, "# "):
		w.end() // the man page has a title of its own
	case strings.HasPrefix(line, "## "):
		w.end()
		w.b.WriteString(".SH " + strings.ToUpper(inline(strings.ReplaceAll(line[3:], "`", ""))) + "\n")
	case strings.HasPrefix(line, "|"):
		w.paragraph()
		w.row(line)
	case line == "":
		w.end()
	case marker != "":
		w.paragraph()
		label := `\(bu`
		if marker[0] != '-' {
			label = strings.TrimSpace(marker)
		}
		w.begin, w.text = ".IP "+label+" 4", []string{line[len(marker):]}
	default:
		w.text = append(w.text, strings.TrimSpace(line))
	}
}

var item = regexp.MustCompile(`^(- |[0-9]+\. )`)

// end writes the current paragraph and table.
func (w *writer) end() {
	w.paragraph()
	w.table()
}

func (w *writer) paragraph() {
	if len(w.text) > 0 {
		if w.begin == "" {
			w.begin = ".PP"
		}
		w.b.WriteString(w.begin + "\n" + inline(strings.Join(w.text, " ")) + "\n")
	}
	w.begin, w.text = "", nil
}

func (w *writer) row(line string) {
	var cells []string
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	switch {
	case w.header == nil:
		w.header = cells
	case strings.Trim(strings.Join(cells, ""), "-:") != "":
		w.rows = append(w.rows, cells)
	}
}

// table writes each row as a tagged paragraph whose tag comes from the first cells.
func (w *writer) table() {
	for _, row := range w.rows {
		tag, text := row[0], strings.Join(row[1:], "")
		if len(row) == 3 {
			switch {
			case w.header[1] == "default":
				tag, text = row[0]+" = "+row[1], row[2]
			case w.header[2] == "": // the first two cells form the tag
				tag, text = strings.TrimSpace(row[0]+" "+row[1]), row[2]
			case row[2] == "":
				text = row[1]
			default:
				text = row[1] + "; " + w.header[2] + ": " + row[2]
			}
		}
		w.b.WriteString(".TP\n" + inline(tag) + "\n")
		if text != "" {
			w.b.WriteString(inline(text) + "\n")
		}
	}
	w.header, w.rows = nil, nil
}

var (
	codeOrBold = regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*")
	link       = regexp.MustCompile(`\[([^][]+)\]\([^)]+\)`)
)

// inline converts the markup within a line: code and bold become bold, and a link becomes its text.
func inline(text string) string {
	text = link.ReplaceAllString(text, "$1")
	var b strings.Builder
	at := 0
	for _, m := range codeOrBold.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(plain(text[at:m[0]]))
		from, to := m[2], m[3]
		if from < 0 {
			from, to = m[4], m[5]
		}
		b.WriteString(`\fB` + plain(text[from:to]) + `\fR`)
		at = m[1]
	}
	b.WriteString(plain(text[at:]))
	return guarded(b.String())
}

// escape converts a line of code.
func escape(line string) string { return guarded(plain(line)) }

// plain escapes the characters that roff would interpret.
func plain(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`).Replace(text)
}

// guarded keeps a leading dot from making the line a roff request.
func guarded(line string) string {
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}
