package fleet

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	zones := map[string]Zone{"calm": {Members: 100, Wanting: 1}, "small": {Members: 12, Wanting: 7}, "large": {Members: 100, Wanting: 60}}
	for _, tt := range []struct {
		name, zone string
		view       View
		slots      Slots
		permitted  bool
		want       Denial
	}{
		{name: "free", zone: "calm", permitted: true},
		{name: "the zone's slot", zone: "calm", slots: Slots{Zone: 4 * time.Second}, want: Denial{"zone calm: next permit in 4s", 4 * time.Second, 10 * time.Second, 1}},
		{name: "the zone's slot at the secondary rate", zone: "large", slots: Slots{Zone: 4 * time.Second}, want: Denial{"zone large: next permit in 4s", 4 * time.Second, 100 * time.Second, 60}},
		{name: "the workload's slot", zone: "calm", slots: Slots{Workload: time.Minute}, want: Denial{"workload shop/web: next permit in 1m", time.Minute, 5 * time.Minute, 1}},
		{name: "both, the workload's lasts longer", zone: "calm", slots: Slots{time.Second, time.Minute}, want: Denial{"workload shop/web: next permit in 1m", time.Minute, 5 * time.Minute, 1}},
		{name: "both, the zone's lasts longer", zone: "calm", slots: Slots{2 * time.Second, time.Second}, want: Denial{"zone calm: next permit in 2s", 2 * time.Second, 10 * time.Second, 1}},
		{name: "rate 0", zone: "small", want: Denial{Reason: "zone small is partial: 0/s"}},
		{name: "rate 0 and slots", zone: "small", slots: Slots{1, 1}, want: Denial{Reason: "zone small is partial: 0/s"}},
		{name: "paused", zone: "calm", view: View{Paused: true}, want: Denial{Reason: "soft stops are paused"}},
		{name: "full fleet", zone: "a", view: View{Zones: map[string]Zone{"a": {9, 9}}}, want: Denial{Reason: "fleet is full: 0/s"}},
		{name: "the only zone", view: View{Zones: map[string]Zone{"": {10, 9}}}, want: Denial{Reason: "the zone is partial: 0/s"}},
	} {
		if tt.view.Zones == nil {
			tt.view.Zones = zones
		}
		permitted, got := DefaultRates().Decide(tt.view, tt.zone, "shop/web", tt.slots)
		if permitted != tt.permitted || got != tt.want {
			t.Errorf("%s: %v, %+v, want %v, %+v", tt.name, permitted, got, tt.permitted, tt.want)
		}
	}
}
