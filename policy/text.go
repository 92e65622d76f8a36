package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nameOf returns the name of an enumerated value, or "kind(n)" for one out of
// range.
func nameOf[T ~uint8](names []string, v T, kind string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return kind + "(" + strconv.Itoa(int(v)) + ")"
}

// parseName is the inverse of nameOf. The error names the closest word.
func parseName[T ~uint8](names []string, s, kind string) (T, error) {
	if i := slices.Index(names, s); i >= 0 {
		return T(i), nil
	}
	return 0, fmt.Errorf("parse %s %q: not one of %s", kind, s, strings.Join(names, ", "))
}

// closest returns the word that s was probably meant to be, "" when none is
// near: at most two edits in five letters.
func closest(s string, words []string) string {
	best, least := "", len(s)*2/5+1
	for _, w := range words {
		if d := distance(s, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance counts the edits (Levenshtein) between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
