package schema

import "testing"

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
