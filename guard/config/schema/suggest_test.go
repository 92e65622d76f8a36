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

// A signal is suggested only if its first part is near, too.
func TestSuggestWord(t *testing.T) {
	signals := []string{"memory.available", "nodefs.available", "imagefs.available", "pid.available", "swap.available"}
	for word, want := range map[string]string{
		"mem.available": "memory.available", "memroy.available": "memory.available", "nodfs.availble": "nodefs.available", "imgfs.available": "imagefs.available",
		"pids.available": "pid.available", "PID.availabel": "pid.available", "node.available": "nodefs.available", "memory.avail": "memory.available",
		"disk.available": "", "cpu.available": "", "fs.available": "",
	} {
		if want != "" {
			want = `did you mean "` + want + `"?`
		}
		if got := SuggestWord(word, signals); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}
