package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config/schema"
)

// place is a key or a table of the file, and how hints write it.
type place struct{ table, key, text string }

// places returns every table and key.
func places() (all []place) {
	seen := map[string]bool{}
	add := func(table, key, text string) {
		if !seen[text] {
			seen[text] = true
			all = append(all, place{table, key, text})
		}
	}
	for _, path := range Keys() {
		for i, c := range path {
			if outer := path[:i]; c == '.' && !strings.HasSuffix(outer, "]") {
				table, key := schema.SplitKey(outer)
				add(table, key, "["+outer+"]")
			}
		}
		switch table, key := schema.SplitKey(path); {
		case strings.HasSuffix(table, "[]"):
			list := strings.TrimSuffix(table, "[]")
			add("", list, "[["+list+"]]")
			add(list, key, "[["+list+"]] "+key)
		case slices.Contains([]string{TableHard, TableSoft, TableGrace, TableMinReclaim}, path):
			add(table, key, "["+path+"]")
		case table == "":
			add("", key, key)
		default:
			add(table, key, "["+table+"] "+key)
		}
	}
	return all
}

// For each key with two letters swapped, the suggestion is the original key.
func TestSuggestFindsEveryKey(t *testing.T) {
	for _, p := range places() {
		if len(p.key) < 5 {
			continue // too short to distinguish
		}
		slip := p.key[:1] + p.key[2:3] + p.key[1:2] + p.key[3:]
		if slip == p.key {
			slip = p.key + "x"
		}
		text := slip + " = 1"
		if strings.HasPrefix(p.text, "[[") && p.table != "" {
			text = "[[" + p.table + "]]\n" + text
		} else if p.table != "" {
			text = "[" + p.table + "]\n" + text
		}
		if got := fmt.Sprint(mistakesIn(t, text)); !strings.Contains(got, p.text) {
			t.Errorf("[%s] %s: %s", p.table, slip, got)
		}
	}
}

// Every key that a kubelet name maps to exists.
func TestKubeletNames(t *testing.T) {
	var texts []string
	for _, p := range places() {
		texts = append(texts, p.text)
	}
	for name, here := range kubeletNames {
		if name != schema.Plain(name) {
			t.Errorf("%s is not plain", name)
		}
		isKey := strings.HasPrefix(here, "[")
		if !isKey && !strings.HasPrefix(here, "not needed: ") || isKey && !slices.Contains(texts, here) {
			t.Errorf("%s: there is no %s", name, here)
		}
	}
}
