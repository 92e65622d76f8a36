package policy

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
)

func TestParseQuantity(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "100": 100, "+5": 5, "007": 7, "1.": 1, ".5Gi": gi / 2,
		"1Ki": ki, "100Mi": 100 * mi, "1.5Gi": gi + gi/2, "2Ti": 2 << 40, "1Pi": 1 << 50, "7Ei": 7 << 60,
		"1k": 1000, "500M": 500e6, "2G": 2e9, "1T": 1e12, "1P": 1e15, "1E": 1e18, "9.2E": 9.2e18,
		"1e3": 1000, "1E3": 1000, "1.5e+6": 1500000, "0e64": 0,
		"9223372036854775807":           math.MaxInt64,
		"1.0000000009313225746154785Ki": 1025, // a fraction of a byte is rounded up
		"0.1":                           1,
		"128974848000m":                 128974848, "5000000u": 5, "3000000000n": 3,
	} {
		q, err := ParseQuantity(in)
		if err != nil || q.IsPercent() || q.Of(0) != want {
			t.Errorf("ParseQuantity(%q) = %v, %v; want %d", in, q, err, want)
		}
	}
	for in, want := range map[string]int64{ // of a capacity of 1e9
		"0%": 0, "10%": 1e8, "10.5%": 105e6, "100%": 1e9, "100.000%": 1e9, "0.000000001%": 0, "33.333333333%": 333333333, "+1%": 1e7,
	} {
		q, err := ParseQuantity(in)
		if err != nil || !q.IsPercent() || q.Of(1e9) != want {
			t.Errorf("ParseQuantity(%q) = %v, %v; want %d", in, q, err, want)
		}
	}
}

func TestParseQuantityErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "must be a quantity",
		strings.Repeat("0", 65):  "must be a quantity",
		"-1":                     "must not be negative",
		"-15%":                   "must not be negative",
		"100.000000001%":         "must not be above 100%",
		"150%":                   "must not be above 100%",
		"1e30%":                  "exponent",
		"0.0000000001%":          "at most 9 decimals",
		"8Ei":                    "below 8Ei",
		"9223372036854775808":    "below 8Ei",
		"1e60":                   "below 8Ei",
		"1e65":                   "exponent",
		"1e-3":                   "exponent",
		"1e":                     "exponent",
		"1e+":                    "exponent",
		"1e++3":                  "exponent",
		".":                      "begin with a number",
		"1.2.3":                  "begin with a number",
		"Mi":                     "begin with a number",
		"%":                      "begin with a number",
		"+":                      "begin with a number",
		"+-1":                    "begin with a number",
		"NaN%":                   "begin with a number",
		"100m":                   `mega is "M"`,
		"1.5m":                   `mega is "M"`,
		"100mu":                  "suffix",
		"100K":                   `"Ki" is 1024`,
		"100MiB":                 `leave the "B" out`,
		"100MB":                  `leave the "B" out`,
		"100MI":                  "suffix",
		"100 Mi":                 "must not contain blanks",
		" 100Mi":                 "must not contain blanks",
		"10%%":                   "suffix",
		"0x10":                   "suffix",
		"1\x00":                  "suffix",
		"١٠Mi":                   "begin with a number",
		"1Mi\xff":                "suffix",
		"99999999999999999999Ei": "below 8Ei",
	} {
		q, err := ParseQuantity(in)
		var qe *QuantityError
		if !errors.As(err, &qe) || !strings.Contains(err.Error(), want) || q != (Quantity{}) {
			t.Errorf("ParseQuantity(%q) = %v, %v; want an error with %q", in, q, err, want)
		}
	}
}

func TestQuantityString(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "0%": "0%", "1024": "1Ki", "1536": "1536", "1.5Ki": "1536", "1.5Gi": "1536Mi", "500M": "500M", "1000": "1k",
		"512000": "500Ki", "7": "7", "10%": "10%", "10.50%": "10.5%", "0.000000001%": "0.000000001%", "100%": "100%",
	} {
		if got := quantity(t, in).String(); got != want {
			t.Errorf("%q prints as %q, want %q", in, got, want)
		}
	}
	for _, q := range []Quantity{{}, Bytes(5), Percent(5), quantity(t, "10.5%")} {
		var again Quantity
		text, err := q.MarshalText()
		if err == nil {
			err = again.UnmarshalText(text)
		}
		if err != nil || again != q || q.IsZero() != (q == Quantity{}) {
			t.Errorf("%v is %q and back %v, %v", q, text, again, err)
		}
	}
	if !Percent(0).IsZero() {
		t.Error("0% is not zero")
	}
	if got := Bytes(-5); got != (Quantity{}) {
		t.Errorf("Bytes(-5) = %v", got)
	}
	if Percent(20) != quantity(t, "20%") || Percent(300) != quantity(t, "100%") || Percent(-1) != quantity(t, "0%") {
		t.Error("Percent differs from what is parsed")
	}
	if got := Percent(10).Of(-5); got != 0 {
		t.Errorf("10%% of -5 = %d", got)
	}
}

// TestVectorsB compares percentages with the kubelet's, which uses 32-bit floats and is off by a few
// bytes. Ours are exact.
func TestVectorsB(t *testing.T) {
	for _, v := range []struct {
		id            string
		capacity      int64
		percent       string
		kubelet, want int64
	}{
		{"V-P1", 1048576000, "10%", 104857601, 104857600},
		{"V-P2", 1048576000, "20%", 209715203, 209715200},
		{"V-P3", 1048576000, "5%", 52428800, 52428800},
		{"V-P4", 1073741824, "10%", 107374184, 107374182},
		{"V-P5", 1073741824, "15%", 161061280, 161061273},
		{"V-P6", 4294967296, "5%", 214748368, 214748364},
		{"V-P7", 107374182400, "10.5%", 11274288800, 11274289152},
	} {
		t.Run(v.id, func(t *testing.T) {
			got := quantity(t, v.percent).Of(v.capacity)
			if got != v.want {
				t.Errorf("%s of %d = %d, want %d", v.percent, v.capacity, got, v.want)
			}
			if off := max(got-v.kubelet, v.kubelet-got); off*1e10 > 200*max(v.capacity, 1e10) {
				t.Errorf("%d is %d away from the kubelet's %d", got, off, v.kubelet)
			}
		})
	}
}

// TestPercentIsExact compares with big integers, up to the largest capacity.
func TestPercentIsExact(t *testing.T) {
	r := source(1)
	for range 10_000 {
		q := Quantity{n: r.Int64N(wholePercent + 1), percent: true}
		capacity := r.Int64() >> r.IntN(63)
		want := new(big.Int).Mul(big.NewInt(capacity), big.NewInt(q.n))
		want.Quo(want, big.NewInt(wholePercent))
		if got := q.Of(capacity); got != want.Int64() {
			t.Fatalf("%s of %d = %d, want %s", q, capacity, got, want)
		}
	}
	if got := Percent(100).Of(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("100%% of everything = %d", got)
	}
}

func FuzzParseQuantity(f *testing.F) {
	for _, s := range []string{"100Mi", "1.5Gi", "10%", "10.5%", "1e3", "500M", "", "-1", "8Ei", "1000m", "0.0000000001%", "1e64", ".", "9e18"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := ParseQuantity(s)
		if err != nil {
			if q != (Quantity{}) {
				t.Fatalf("%q is %v and an error", s, q)
			}
			return
		}
		if n := q.Of(1000); n < 0 || q.IsPercent() && n > 1000 {
			t.Fatalf("%q of 1000 is %d", s, n)
		}
		again, err := ParseQuantity(q.String())
		if err != nil || again != q {
			t.Fatalf("%q prints as %q, which reads as %v, %v", s, q, again, err)
		}
	})
}
