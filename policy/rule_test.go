package policy

import (
	"errors"
	"path"
	"testing"
)

func TestRuleMatch(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "", "v": "1.2"}
	for _, v := range []struct {
		name string
		rule Rule
		want bool
	}{
		{"empty", Rule{}, true},
		{"namespace", Rule{Namespace: "batch"}, true},
		{"another namespace", Rule{Namespace: "batc"}, false},
		{"no prefix match", Rule{Namespace: "bat"}, false},
		{"glob", Rule{Namespace: "b*", Name: "job-?"}, true},
		{"glob of names", Rule{Name: "job-[a-c]"}, false},
		{"both must match", Rule{Namespace: "batch", Name: "x*"}, false},
		{"any", Rule{Namespace: "*", Name: "*"}, true},
		{"case counts", Rule{Namespace: "Batch"}, false},
		{"label", Rule{Labels: map[string]string{"app": "web"}}, true},
		{"label of another value", Rule{Labels: map[string]string{"app": "api"}}, false},
		{"label glob", Rule{Labels: map[string]string{"app": "w*", "v": "1.*"}}, true},
		{"one label of two", Rule{Labels: map[string]string{"app": "web", "x": "y"}}, false},
		{"label with any value", Rule{Labels: map[string]string{"tier": "*"}}, true},
		{"label that is missing", Rule{Labels: map[string]string{"x": "*"}}, false},
		{"empty label value", Rule{Labels: map[string]string{"tier": ""}}, true},
		{"empty is not any", Rule{Labels: map[string]string{"app": ""}}, false},
		{"missing is not empty", Rule{Labels: map[string]string{"x": ""}}, false},
		{"not a pattern", Rule{Name: "[j"}, false},
	} {
		if got := v.rule.Match("batch", "job-7", labels); got != v.want {
			t.Errorf("%s: match %v, want %v", v.name, got, v.want)
		}
	}
	if !(Rule{Name: "*"}).Match("a", "odd/name", nil) || (Rule{Labels: map[string]string{"a": "b"}}).Match("a", "b", nil) {
		t.Error("* is not any, or no labels match some")
	}
}

func TestRuleValidate(t *testing.T) {
	if err := (Rule{}).Validate(); !errors.Is(err, ErrEmptyRule) {
		t.Errorf("empty: %v", err)
	}
	for _, r := range []Rule{{Namespace: "*"}, {Name: "a-[0-9]"}, {Labels: map[string]string{"a": ""}}} {
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []Rule{{Namespace: "["}, {Name: "a["}, {Name: "ok", Labels: map[string]string{"a": "[]"}}} {
		if err := r.Validate(); !errors.Is(err, path.ErrBadPattern) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
