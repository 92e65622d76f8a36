package words

import (
	"slices"
	"strings"

	"github.com/criguard/criguard/guard/api"
)

// Filter selects passes by what they did. The zero value selects all.
type Filter struct {
	Pod    string // namespace/name, or the name, of a pod that was stopped, protected or no longer protected
	Signal string // that a pass acted on, or could not act on
	Stops  bool   // only passes that began or ended a stop
}

// Newest returns the newest n of the passes that match the filter, all for n = 0. It changes the slice.
func (f Filter) Newest(passes []api.Pass, n int) []api.Pass {
	passes = slices.DeleteFunc(passes, func(p api.Pass) bool { return !f.selects(&p) })
	if n > 0 {
		passes = passes[max(len(passes)-n, 0):]
	}
	return passes
}

// selects reports whether a pass matches every part of the filter.
func (f Filter) selects(p *api.Pass) bool {
	stops := append([]api.StopView(nil), p.Settled...)
	if p.Stop != nil {
		stops = append(stops, *p.Stop)
	}
	switch {
	case f.Stops && len(stops) == 0 && p.Escalated == "":
		return false
	case f.Pod != "" && !concerns(p, stops, f.Pod):
		return false
	default:
		return f.Signal == "" || slices.Contains(signals(p, stops), f.Signal)
	}
}

// concerns reports whether a pass stopped a pod, or whether its command named it.
func concerns(p *api.Pass, stops []api.StopView, pod string) bool {
	return isNamed(p.Escalated, pod) || p.Command != nil && isNamed(p.Command.Pod, pod) ||
		slices.ContainsFunc(stops, func(s api.StopView) bool { return isNamed(s.Pod, pod) })
}

// isNamed reports whether a pod, namespace/name, has a name, with or without the namespace.
func isNamed(pod, name string) bool {
	return pod == name || !strings.Contains(name, "/") && strings.HasSuffix(pod, "/"+name)
}

// signals returns the signals that a pass acted on or reported.
func signals(p *api.Pass, stops []api.StopView) (all []string) {
	for i := range stops {
		all = append(all, stops[i].Signal)
	}
	for i := range p.Reclaimed {
		all = append(all, p.Reclaimed[i].Signal.String())
	}
	for _, threshold := range []string{p.HeldBy, p.AlarmBy} {
		signal, _, _ := strings.Cut(threshold, ":")
		all = append(all, signal)
	}
	if p.Changed || p.Escalated != "" {
		for i := range p.Met {
			all = append(all, p.Met[i].Signal.String())
		}
	}
	return all
}
