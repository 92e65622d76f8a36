package api

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
)

// What Recognize returns.
const (
	// IsHistory is the output of `criguard history -o json`, with or without --follow.
	IsHistory = "a history, as `criguard history -o json` prints it"
	// IsNodeTrace is the trace of a node.
	IsNodeTrace = "the trace of a node, for `criguard simulate`"
	// IsFleetTrace is the trace of a fleet.
	IsFleetTrace = "the trace of a fleet, for `criguard fleet simulate`"
	// IsAnswer is the output of another command.
	IsAnswer = "the output of a command with -o json"
	// IsIndented is any other JSON value on several lines.
	IsIndented = "a JSON value on several lines"
)

// Recognize returns what a file is by the outermost fields of its first value, or "". The scanner is at the first line,
// and Recognize reads the few more that an indented value needs.
func Recognize(sc *bufio.Scanner) string {
	const enough = 4
	text := strings.TrimSpace(sc.Text())
	indented := text == "{" || text == "["
	for i := 0; i < enough && indented && sc.Scan(); i++ {
		text += "\n" + sc.Text()
	}
	keys := outermost(text)
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(key string) bool { return slices.Contains(keys, key) })
	}
	switch {
	case has("passes") || has("id") && has("wake"):
		return IsHistory
	case has("apiVersion"):
		return IsAnswer
	case has("signals", "pods", "changed_pods", "layout"):
		return IsNodeTrace
	case has("members", "wanting", "requests", "withdraw"):
		return IsFleetTrace
	case indented:
		return IsIndented
	}
	return ""
}

// outermost returns the names of the fields of a JSON object, as far as the text goes.
func outermost(text string) (keys []string) {
	dec := json.NewDecoder(strings.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			break
		}
		keys = append(keys, name)
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
	}
	return keys
}
