package fleet

import "fmt"

// Explain returns the arithmetic of a zone's state and rate: "7 of 12 want a soft stop, 58 % ≥ 55 %: partial, 0/s".
func (r Rates) Explain(v View, zone string) string {
	z := v.Zones[zone]
	n, u := z.Size(), z.Wanting
	text := fmt.Sprintf("%d of %d want a soft stop", u, n)
	switch {
	case n < r.MinZone:
		text += fmt.Sprintf(", fewer than %d members", r.MinZone)
	case u == 0 || u == n:
	case r.reached(u, n) && u <= 2:
		text += ", at most 2"
	case r.reached(u, n):
		text += fmt.Sprintf(", %s ≥ %s", r.share(u, n), percent(r.Unhealthy))
	default:
		text += fmt.Sprintf(", %s < %s", r.share(u, n), percent(r.Unhealthy))
	}
	text += ": " + r.State(z).String()
	switch {
	case v.Paused:
		text += ", paused"
	case v.Settling:
		text += ", settling"
	case r.FleetFull(v.Zones):
		text += ", the fleet is full"
	}
	return fmt.Sprintf("%s, %s/s", text, r.Of(v, zone))
}

// share formats a part of a whole, rounded down to the digits of Unhealthy, so that it compares as the state does.
func (r Rates) share(part, whole int) string {
	share, digit := Millionths(int64(part)*int64(one)/int64(whole)), one/100
	for digit > 1 && r.Unhealthy%digit != 0 {
		digit /= 10
	}
	return percent(share / digit * digit)
}

func percent(share Millionths) string { return (100 * share).String() + " %" }
