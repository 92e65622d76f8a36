package schema

import (
	"fmt"
	"reflect"
	"strings"
)

// suggest proposes a key in place of an unknown one: one that begins with the word, or the nearest, in this
// table. Another table's key is proposed only if it is the same word: a key below the wrong [table] is the usual
// mistake in TOML, and no guess.
func (h Hints) suggest(keys []Key, path, key string) string {
	word := Plain(key)
	if name := h.Others[word]; strings.HasPrefix(name, "[") {
		return key + " is " + name + " in criguard"
	} else if name != "" {
		return key + " is " + name
	}
	table := strings.TrimRight(path, "[]0123456789") // strip the index, as in priority[2]
	var here, same []place
	for _, p := range places(keys) {
		switch {
		case p.table == table:
			here = append(here, p)
		case Plain(p.key) != word:
		case p.table == "" && p.text == p.key:
			p.text += " above the first [table]"
			fallthrough
		default:
			same = append(same, p)
		}
	}
	for _, places := range [][]place{nearest(word, here, 0), longer(word, here, strings.HasPrefix), same, nearest(word, here, slipsFor(word)), longer(word, here, strings.Contains)} {
		if len(places) > 0 {
			return ask(places)
		}
	}
	if h.Unknown != "" {
		return h.Unknown
	}
	names := make([]string, len(here))
	for i, p := range here {
		names[i] = p.key
	}
	return "the keys here are " + strings.Join(names, ", ")
}

// ask proposes places as a question.
func ask(places []place) string {
	var texts []string
	for _, p := range places {
		texts = append(texts, p.text)
	}
	return "did you mean " + strings.Join(texts, " or ") + "?"
}

// place is a key and its table.
type place struct {
	table string // path of the table; "": the top level
	key   string
	text  string // for display: "[images] min_age", "[eviction.hard]", "[[protect]]"
}

// places returns the tables and keys, in the order of the file.
func places(keys []Key) (all []place) {
	tables := map[string]bool{"": true}
	for _, k := range keys {
		table, name := SplitKey(k.Name)
		for i, c := range k.Name {
			if path := k.Name[:i]; c == '.' && !tables[path] {
				tables[path] = true
				outer, inner := SplitKey(path)
				all = append(all, place{outer, inner, "[" + path + "]"})
			}
		}
		p := place{table, name, "[" + table + "] " + name}
		switch {
		case k.IsTables():
			p.text = "[[" + name + "]]"
			for _, sub := range k.add() {
				all = append(all, place{name, sub.Name, p.text + " " + sub.Name})
			}
		case table == "":
			p.text = name
		case reflect.TypeOf(k.def) == reflect.TypeFor[map[string]string]():
			p.text = "[" + k.Name + "]"
		}
		all = append(all, p)
	}
	return all
}

// maxGuessed limits the length of words that are compared with others, in bytes.
const maxGuessed = 64

// nearest returns the places whose keys have the smallest edit distance, at most slips.
func nearest(word string, among []place, slips int) (near []place) {
	if len(word) > maxGuessed {
		return nil
	}
	for _, p := range among {
		if !sameKind(word, Plain(p.key)) {
			continue
		}
		d := distance(word, Plain(p.key))
		if d < slips {
			slips, near = d, nil
		}
		if d == slips {
			near = append(near, p)
		}
	}
	return near
}

// sameKind reports whether the part of a word before its dot, which a long end in common would outweigh, is near that
// of a key: "mem.available" may mean "memory.available", but "disk.available" not "pid.available".
func sameKind(word, key string) bool {
	w, _, dotted := strings.Cut(word, ".")
	k, _, _ := strings.Cut(key, ".")
	return !dotted || strings.HasPrefix(k, w) || distance(w, k) <= slipsFor(w)
}

// longer returns the places whose keys begin with or contain the word, which has at least four bytes.
func longer(word string, among []place, has func(key, word string) bool) (places []place) {
	for _, p := range among {
		if len(word) > 3 && has(Plain(p.key), word) {
			places = append(places, p)
		}
	}
	return places
}

// SuggestWord suggests the word that was probably meant, as a question, or returns "" if no word is
// close. A beginning counts more than a small distance: "memory.avail" is not "memory.stall".
func SuggestWord(word string, among []string) string {
	var all []place
	for _, w := range among {
		all = append(all, place{key: w, text: fmt.Sprintf("%q", w)})
	}
	word = Plain(word)
	if begun := longer(word, all, strings.HasPrefix); len(begun) > 0 {
		return ask(begun)
	}
	if near := nearest(word, all, slipsFor(word)); len(near) > 0 {
		return ask(near[:1])
	}
	return ""
}

// Plain normalizes the spelling of a key.
func Plain(key string) string {
	return strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(key, "-", ""), "_", ""))
}

// slipsFor returns how many typing errors a word may have. With more, the suggestion is far-fetched.
func slipsFor(word string) int { return min(max((len(word)+1)/3, 1), 3) }

// distance counts the typing errors between two words: letters changed, inserted, omitted, or
// swapped with the next (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(change, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
