package policy

import "testing"

func TestUncounted(t *testing.T) {
	uncounted, failed := Candidate{Uncounted: true}, Candidate{}
	counted, none := Candidate{Memory: Known(gi)}, Candidate{Memory: Known(0)}
	protected := Candidate{Memory: Known(gi), Protection: "static pod"}
	for name, v := range map[string]struct {
		cs   []Candidate
		want bool
	}{
		"nobody":                            {nil, false},
		"none is counted":                   {[]Candidate{uncounted, uncounted}, true},
		"one alone":                         {[]Candidate{uncounted}, true},
		"one cannot be read either":         {[]Candidate{failed, uncounted}, true},
		"none can be read for once":         {[]Candidate{failed, failed}, false},
		"a few are not counted":             {[]Candidate{uncounted, counted, uncounted}, false},
		"who is gone or protected is none":  {[]Candidate{uncounted, none, protected}, true},
		"nobody that is counted can go":     {[]Candidate{none, protected}, false},
		"the others are protected, one not": {[]Candidate{protected, failed}, false},
	} {
		if got := Uncounted(Rank(v.cs, MemoryAvailable, SingleFS, nil, mi)); got != v.want {
			t.Errorf("%s: %v, want %v", name, got, v.want)
		}
	}
}
