package config

import (
	"slices"
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"same", "same", 0}, {"min_age", "minage", 1},
		{"first", "frist", 1}, {"lable", "labels", 2}, {"high", "low", 4}, {"kitten", "sitting", 3},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.b, test.a, got, test.want)
		}
	}
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
		if got := suggest(p.table, slip); !strings.Contains(got, p.text) {
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
		if name != plain(name) {
			t.Errorf("%s is not plain", name)
		}
		isKey := strings.HasPrefix(here, "[")
		if !isKey && !strings.HasPrefix(here, "not needed: ") || isKey && !slices.Contains(texts, here) {
			t.Errorf("%s: there is no %s", name, here)
		}
	}
}
