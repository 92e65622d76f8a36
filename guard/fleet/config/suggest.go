package config

import (
	"slices"
	"strings"
)

// maxGuessed limits the length of words that are compared, in bytes.
const maxGuessed = 64

// suggest proposes a key or a table in place of an unknown one: the nearest word of its table, or the same word in another.
func suggest(keys []key, path, word string) string {
	best, nearest := "", 3 // at most two typing errors
	var here []string
	offer := func(table, name, text string) {
		if table == path && !slices.Contains(here, name) {
			here = append(here, name)
		}
		d := distance(plain(word), plain(name))
		if d < nearest && (table == path || d == 0) {
			best, nearest = text, d
		}
	}
	for _, k := range keys {
		if table, name, ok := strings.Cut(k.name, "."); ok {
			offer(table, name, "["+table+"] "+name)
			offer("", table, "["+table+"]")
		} else {
			offer("", k.name, k.name)
		}
	}
	if best == "" {
		return "the keys here are " + strings.Join(here, ", ")
	}
	return "did you mean " + best + "?"
}

// plain normalizes the spelling of a key.
func plain(word string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(word))
}

// distance counts the letters to change, insert or remove between two words.
func distance(a, b string) int {
	if len(a) > maxGuessed {
		return maxGuessed
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0]++
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
