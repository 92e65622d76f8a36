package config

import (
	"fmt"
	"reflect"
	"strings"
)

// kubeletNames maps options and flags of the kubelet and crictl to criguard's keys. The names are
// normalized by plain.
var kubeletNames = map[string]string{
	"evictionhard":                      "[eviction.hard]",
	"evictionsoft":                      "[eviction.soft]",
	"evictionsoftgraceperiod":           "[eviction.soft_grace_period]",
	"evictionminimumreclaim":            "[eviction.minimum_reclaim]",
	"evictionpressuretransitionperiod":  "[eviction] pressure_transition_period",
	"evictionmaxpodgraceperiod":         "[eviction] max_pod_grace_period",
	"mergedefaultevictionsettings":      "not needed: defaults are always merged",
	"kernelmemcgnotification":           "not needed: criguard always asks the kernel for notifications",
	"enforcenodeallocatable":            "not needed: criguard watches the limit of the pods' cgroup if it has one",
	"localstoragecapacityisolation":     "[[limit]] ephemeral_storage",
	"housekeepinginterval":              "[eviction] interval",
	"imagegchighthresholdpercent":       "[images] high",
	"imagegclowthresholdpercent":        "[images] low",
	"imagegchighthreshold":              "[images] high",
	"imagegclowthreshold":               "[images] low",
	"imageminimumgcage":                 "[images] min_age",
	"imagemaximumgcage":                 "[images] max_age",
	"minimumimagettlduration":           "[images] min_age",
	"minimumcontainerttlduration":       "[containers] min_age",
	"maximumdeadcontainerspercontainer": "[containers] max_per_container",
	"maximumdeadcontainers":             "[containers] max",
	"containerruntimeendpoint":          "[runtime] endpoint",
	"runtimeendpoint":                   "[runtime] endpoint",
	"imageserviceendpoint":              "not needed: criguard uses [runtime] endpoint for images, too",
	"imageendpoint":                     "not needed: criguard uses [runtime] endpoint for images, too",
	"runtimerequesttimeout":             "[runtime] timeout",
	"podlogsdir":                        "[node] pod_log_dir",
	"rootdir":                           "[node] root_dir",
	"cgrouproot":                        "[node] pods_cgroup",
	"cgroupdriver":                      "not needed: criguard detects it",
}

// suggest proposes a key in place of an unknown one: one that begins with the word, or the nearest, in this
// table. Another table's key is proposed only if it is the same word: a key below the wrong [table] is the usual
// mistake in TOML, and no guess.
func suggest(path, key string) string {
	word := plain(key)
	if name := kubeletNames[word]; strings.HasPrefix(name, "[") {
		return key + " is " + name + " in criguard"
	} else if name != "" {
		return key + " is " + name
	}
	table := strings.TrimRight(path, "[]0123456789") // strip the index, as in priority[2]
	var here, same []place
	for _, p := range places() {
		switch {
		case p.table == table:
			here = append(here, p)
		case plain(p.key) != word:
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
	return "config.example.toml lists every key"
}

// ask proposes places as a question.
func ask(places []place) string {
	return "did you mean " + strings.Join(convertAll(places, func(p place) string { return p.text }), " or ") + "?"
}

// place is a key and its table.
type place struct {
	table string // path of the table; "": the top level
	key   string
	text  string // for display: "[images] min_age", "[eviction.hard]", "[[protect]]"
}

// places returns the tables and keys, in the order of the file.
func places() (all []place) {
	keys, _ := schema(&Config{})
	tables := map[string]bool{"": true}
	for _, k := range keys {
		table, name := splitKey(k.name)
		for i, c := range k.name {
			if path := k.name[:i]; c == '.' && !tables[path] {
				tables[path] = true
				outer, inner := splitKey(path)
				all = append(all, place{outer, inner, "[" + path + "]"})
			}
		}
		p := place{table, name, "[" + table + "] " + name}
		switch {
		case k.rules != nil:
			p.text = "[[" + name + "]]"
			for _, sub := range k.rules.add() {
				all = append(all, place{name, sub.name, p.text + " " + sub.name})
			}
		case table == "":
			p.text = name
		case reflect.TypeOf(k.def) == reflect.TypeFor[map[string]string]():
			p.text = "[" + k.name + "]"
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
		d := distance(word, plain(p.key))
		if d < slips {
			slips, near = d, nil
		}
		if d == slips {
			near = append(near, p)
		}
	}
	return near
}

// longer returns the places whose keys begin with or contain the word, which has at least four bytes.
func longer(word string, among []place, has func(key, word string) bool) (places []place) {
	for _, p := range among {
		if len(word) > 3 && has(plain(p.key), word) {
			places = append(places, p)
		}
	}
	return places
}

// nearestWord suggests the word that was probably meant, as a question, or returns "" if no word is
// close. A beginning counts more than a small distance: "memory.avail" is not "memory.stall".
func nearestWord(word string, among []string) string {
	var all []place
	for _, w := range among {
		all = append(all, place{key: w, text: fmt.Sprintf("%q", w)})
	}
	word = plain(word)
	if begun := longer(word, all, strings.HasPrefix); len(begun) > 0 {
		return ask(begun)
	}
	if near := nearest(word, all, slipsFor(word)); len(near) > 0 {
		return ask(near[:1])
	}
	return ""
}

// SuggestWord suggests the word of a list that was probably meant, as a question, or returns "" if none is close.
func SuggestWord(word string, among []string) string { return nearestWord(word, among) }

// SuggestSignal suggests the signal that was probably meant, as a question, or returns "" if none is close.
func SuggestSignal(name string) string { return nearestWord(name, signalNames()) }

// plain normalizes the spelling of a key.
func plain(key string) string {
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
