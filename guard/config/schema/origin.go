package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// Origin is the place where a key was set. The zero value means that the default applies.
type Origin struct {
	File string `json:"file,omitempty"` // that sets it; left out if the default applies
	Line int    `json:"line,omitempty"` // 0: unknown
}

// String returns file:line, or "default".
func (o Origin) String() string {
	switch {
	case o.File == "":
		return "default"
	case o.Line == 0:
		return o.File
	default:
		return o.File + ":" + strconv.Itoa(o.Line)
	}
}

// Origins records where each key was set, over all files.
type Origins struct {
	Files    []string          // lowest precedence first
	file     string            // that is being read, or was read last
	keyed    map[string]Origin // tables and keys, by path
	elements map[string]int    // number of elements in each list of tables, by its path
	before   map[string]int    // number of those that precede the elements of this file
}

func newOrigins() Origins {
	return Origins{keyed: map[string]Origin{}, elements: map[string]int{}}
}

// begin starts the next file.
func (o *Origins) begin(file string) {
	o.Files, o.file = append(o.Files, file), file
}

// adopt records the keys of a file. Keys that it does not set keep their origin.
func (o *Origins) adopt(d document) {
	o.file, o.before = d.name, d.before
	for path, line := range d.lines {
		if list, n, rest, ok := element(path); ok {
			path = fmt.Sprintf("%s[%d]%s", list, o.before[list]+n, rest)
		}
		o.keyed[path] = Origin{o.file, line}
	}
}

// element splits the path of an element in a list of tables: "protect[2].name" becomes "protect", 2
// and ".name".
func element(path string) (list string, n int, rest string, ok bool) {
	list, rest, ok = strings.Cut(path, "[")
	if !ok {
		return "", 0, "", false
	}
	number, rest, ok := strings.Cut(rest, "]")
	n, err := strconv.Atoi(number)
	return list, n, rest, ok && err == nil
}

// At returns where a key itself was set, and whether it was. Keys inside an inline value have no line of their own.
func (o *Origins) At(key string) (Origin, bool) {
	at, ok := o.keyed[key]
	return at, ok
}

// Of returns where a key, or else the innermost table around it, was set. If that is unknown, it
// returns the file that was read last.
func (o *Origins) Of(key string) Origin {
	if at, ok := enclosing(o.keyed, key); ok {
		return at
	}
	return Origin{File: o.file}
}
