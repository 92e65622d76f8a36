package guard

import (
	"fmt"
	"reflect"
	"strings"
)

// kubeletNames is what the kubelet's and crictl's options and flags are here. Their
// names are as plain makes them.
var kubeletNames = map[string]string{
	"evictionhard":                      "[eviction.hard] here",
	"evictionsoft":                      "[eviction.soft] here",
	"evictionsoftgraceperiod":           "[eviction.soft_grace_period] here",
	"evictionminimumreclaim":            "[eviction.minimum_reclaim] here",
	"evictionpressuretransitionperiod":  "[eviction] pressure_transition_period here",
	"evictionmaxpodgraceperiod":         "[eviction] max_pod_grace_period here",
	"mergedefaultevictionsettings":      "needless: defaults are always merged",
	"kernelmemcgnotification":           "needless: the kernel is always asked to notify",
	"enforcenodeallocatable":            "needless: the limit of the pods cgroup is watched where it has one",
	"localstoragecapacityisolation":     "[[limit]] ephemeral_storage here",
	"housekeepinginterval":              "[eviction] interval here",
	"imagegchighthresholdpercent":       "[images] high here",
	"imagegclowthresholdpercent":        "[images] low here",
	"imagegchighthreshold":              "[images] high here",
	"imagegclowthreshold":               "[images] low here",
	"imageminimumgcage":                 "[images] min_age here",
	"imagemaximumgcage":                 "[images] max_age here",
	"minimumimagettlduration":           "[images] min_age here",
	"minimumcontainerttlduration":       "[containers] min_age here",
	"maximumdeadcontainerspercontainer": "[containers] max_per_container here",
	"maximumdeadcontainers":             "[containers] max here",
	"containerruntimeendpoint":          "[runtime] endpoint here",
	"runtimeendpoint":                   "[runtime] endpoint here",
	"imageserviceendpoint":              "needless: images are at [runtime] endpoint",
	"imageendpoint":                     "needless: images are at [runtime] endpoint",
	"runtimerequesttimeout":             "[runtime] timeout here",
	"podlogsdir":                        "[node] pod_log_dir here",
	"rootdir":                           "[node] root_dir here",
	"cgrouproot":                        "[node] pods_cgroup here",
	"cgroupdriver":                      "needless: it is found",
}

// suggest says what was probably meant by a key that the table at a path does not
// have: the same word there, in other tables, or the nearest word.
func suggest(path, key string) string {
	word := plain(key)
	if name, ok := kubeletNames[word]; ok {
		return key + " is " + name
	}
	table := strings.TrimRight(path, "[]0123456789") // of priority[2], too
	var here, elsewhere []place
	for _, p := range places(reflect.TypeFor[configKeys](), "", false) {
		switch {
		case p.table == table:
			here = append(here, p)
		case p.table == "" && p.text == p.key:
			p.text += " above the first [table]"
			fallthrough
		default:
			elsewhere = append(elsewhere, p)
		}
	}
	slip := slipsFor(word)
	for _, try := range []struct {
		places []place
		slip   int
	}{{here, 0}, {elsewhere, 0}, {here, slip}, {elsewhere, slip}} {
		if near := nearest(word, try.places, try.slip); len(near) > 0 {
			return "did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	if parts := containing(word, here); len(parts) > 0 {
		return "did you mean " + strings.Join(parts, " or ") + "?"
	}
	return "config.example.toml has every key"
}

// place is where a key belongs.
type place struct {
	table string // its path; "" = the top of the file
	key   string
	text  string // for people: "[images] min_age", "[eviction.hard]", "[[protect]]"
}

// places lists the tables and keys below a type, in the order of the file.
func places(t reflect.Type, table string, list bool) (all []place) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			all = append(all, places(f.Type, table, list)...)
			continue
		}
		key := keyOf(f)
		path := joinKey(table, key)
		p := place{table, key, "[" + table + "] " + key}
		switch {
		case list:
			p.text = "[[" + table + "]] " + key
		case table == "":
			p.text = key
		}
		switch kind := f.Type.Kind(); {
		case kind == reflect.Struct:
			p.text = "[" + path + "]"
			all = append(append(all, p), places(f.Type, path, false)...)
			continue
		case kind == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			p.text = "[[" + path + "]]"
			all = append(append(all, p), places(f.Type.Elem(), path, true)...)
			continue
		case kind == reflect.Map && !list:
			p.text = "[" + path + "]"
		}
		all = append(all, p)
	}
	return all
}

// maxGuessed bounds the words that are compared with others, in bytes.
const maxGuessed = 64

// nearest gives those of the places whose keys are the fewest slips away, and no
// more than so many.
func nearest(word string, among []place, slips int) (texts []string) {
	if len(word) > maxGuessed {
		return nil
	}
	for _, p := range among {
		d := distance(word, plain(p.key))
		if d < slips {
			slips, texts = d, nil
		}
		if d == slips {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// containing gives those of the places whose keys have the word as a part.
func containing(word string, among []place) (texts []string) {
	for _, p := range among {
		if len(word) > 3 && strings.Contains(plain(p.key), word) {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// nearestWord gives the one of the words that was probably meant, as a question;
// "" = none is near.
func nearestWord(word string, among []string) string {
	var all []place
	for _, w := range among {
		all = append(all, place{key: w, text: fmt.Sprintf("%q", w)})
	}
	if near := nearest(plain(word), all, slipsFor(word)); len(near) > 0 {
		return "did you mean " + near[0] + "?"
	}
	return ""
}

// plain is a key without what spellings differ in.
func plain(key string) string {
	return strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(key, "-", ""), "_", ""))
}

// slipsFor is how many slips a word may have.
func slipsFor(word string) int { return max(len(word)*2/5, 1) }

// distance counts the slips between two words: letters changed, added, left out, or
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
