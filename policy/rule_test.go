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

func TestWorkload(t *testing.T) {
	for _, v := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{"web-7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "web"},
		{"web-7d4b9c6f5-x2k9z", nil, "web-7d4b9c6f5-x2k9z"},
		{"web-7d4b9c6f5-x2k9z", map[string]string{"app": "web"}, "web-7d4b9c6f5-x2k9z"},
		{"web-7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "other"}, "web-7d4b9c6f5-x2k9z"},
		{"web7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "web7d4b9c6f5-x2k9z"},
		{"-7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "-7d4b9c6f5-x2k9z"},
		{"agent-x2k9z", map[string]string{"controller-revision-hash": "5b8"}, "agent"},
		{"agent-x2k9", map[string]string{"controller-revision-hash": "5b8"}, "agent-x2k9"},
		{"agent-X2k9z", map[string]string{"controller-revision-hash": "5b8"}, "agent-X2k9z"},
		{"-x2k9z", map[string]string{"controller-revision-hash": "5b8"}, "-x2k9z"},
		{"db-0", map[string]string{"controller-revision-hash": "db-5b8"}, "db-0"},
		{"db-10000", map[string]string{"controller-revision-hash": "db-5b8", "statefulset.kubernetes.io/pod-name": "db-10000"}, "db-10000"},
		{"backup-x2k9z", map[string]string{"job-name": "backup"}, "backup"},
		{"backup-28391-x2k9z", map[string]string{"batch.kubernetes.io/job-name": "backup-28391", "job-name": "backup-28391"}, "backup-28391"},
		{"backup-3-x2k9z", map[string]string{"batch.kubernetes.io/job-name": "backup"}, "backup-3"},
		{"restore-x2k9z", map[string]string{"job-name": "backup"}, "restore-x2k9z"},
		{"solo", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "solo"},
		{"", nil, ""},
	} {
		if got, want := Workload("ns", v.name, v.labels), "ns/"+v.want; got != want {
			t.Errorf("%q with %v is %q, want %q", v.name, v.labels, got, want)
		}
	}
}
