package reclaim

import (
	"testing"
	"time"
)

// Only a new highest value is a rise, and only if it is high enough.
func TestRise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		least   int64
		amounts []int64 // one a second, after 100
		want    Rise
	}{
		"it stays":                  {0, []int64{100, 100}, Rise{100, 0}},
		"it rises":                  {0, []int64{101, 150, 150}, Rise{150, 2 * time.Second}},
		"it falls":                  {0, []int64{90, 80}, Rise{100, 0}},
		"it falls and comes back":   {0, []int64{50, 70, 100}, Rise{100, 0}},
		"it falls and rises":        {0, []int64{50, 101}, Rise{101, 2 * time.Second}},
		"less than is normal":       {10, []int64{101, 105, 109}, Rise{100, 0}},
		"slowly, but on the whole":  {10, []int64{104, 108, 112, 116}, Rise{112, 3 * time.Second}},
		"nothing is missing":        {-7, []int64{100, 99}, Rise{100, 0}},
		"nothing is missing, rises": {-7, []int64{100, 101}, Rise{101, 2 * time.Second}},
	} {
		r := Rise{Highest: 100}
		for i, amount := range c.amounts {
			r.See(time.Duration(i+1)*time.Second, amount, c.least)
		}
		if r != c.want {
			t.Errorf("%s: %+v, want %+v", name, r, c.want)
		}
	}
}

// FuzzRise: an amount that does not exceed the highest value changes nothing, each rise is at least as high as is asked for and as
// late as its reading, and no amount stays above the highest value by as much.
func FuzzRise(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 100, 201}, uint8(1))
	f.Add([]byte{100, 0, 100, 0, 101}, uint8(0))
	f.Fuzz(func(t *testing.T, amounts []byte, least uint8) {
		var r, highs Rise
		for i, amount := range amounts {
			before, now, a := r, time.Duration(i+1), int64(amount)
			r.See(now, a, int64(least))
			if a > highs.Highest {
				highs.See(now, a, int64(least))
			}
			needs := max(int64(least), 1)
			if r != highs || a-r.Highest >= needs || r != before && (r.Highest-before.Highest < needs || r != Rise{a, now}) {
				t.Fatalf("%v, at least %d: after %d %+v, before %+v", amounts, least, i+1, r, before)
			}
		}
	})
}
