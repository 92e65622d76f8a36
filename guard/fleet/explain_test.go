package fleet

import "testing"

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		zone Zone
		view View
		want string
	}{
		{Zone{12, 7}, View{}, "7 of 12 want a soft stop, 58 % ≥ 55 %: partial, 0/s"},
		{Zone{100, 55}, View{}, "55 of 100 want a soft stop, 55 % ≥ 55 %: partial, 0.01/s"},
		{Zone{1000, 549}, View{}, "549 of 1000 want a soft stop, 54 % < 55 %: normal, 0.1/s"},
		{Zone{12, 0}, View{}, "0 of 12 want a soft stop: normal, 0.1/s"},
		{Zone{0, 0}, View{}, "0 of 0 want a soft stop, fewer than 4 members: normal, 0.1/s"},
		{Zone{3, 3}, View{}, "3 of 3 want a soft stop, fewer than 4 members: normal, 0.1/s"},
		{Zone{2, 5}, View{}, "5 of 5 want a soft stop: full, the fleet is full, 0/s"},
		{Zone{60, 60}, View{Zones: map[string]Zone{"b": {4, 0}}}, "60 of 60 want a soft stop: full, 0.01/s"},
		{Zone{12, 1}, View{Paused: true}, "1 of 12 want a soft stop, 8 % < 55 %: normal, paused, 0/s"},
		{Zone{12, 7}, View{Settling: true}, "7 of 12 want a soft stop, 58 % ≥ 55 %: partial, settling, 0.01/s"},
	} {
		v := tt.view
		if v.Zones == nil {
			v.Zones = map[string]Zone{}
		}
		v.Zones["a"] = tt.zone
		if got := DefaultRates().Explain(v, "a"); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.zone, got, tt.want)
		}
	}
	r := DefaultRates()
	r.MinZone = 2
	if got, want := r.Explain(View{Zones: map[string]Zone{"a": {3, 2}}}, "a"), "2 of 3 want a soft stop, at most 2: normal, 0.1/s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r = DefaultRates()
	r.Unhealthy = 583_000
	for u, want := range map[int]string{583: "583 of 1000 want a soft stop, 58.3 % ≥ 58.3 %: partial, 0.01/s", 582: "582 of 1000 want a soft stop, 58.2 % < 58.3 %: normal, 0.1/s"} {
		if got := r.Explain(View{Zones: map[string]Zone{"a": {1000, u}}}, "a"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
