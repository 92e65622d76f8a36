package inventory

import (
	"maps"
	"time"

	"github.com/criguard/criguard/cri"
)

// askSilentAgain is the least pause between two requests for the details of an exited container that did not show the class of its
// pod: CRI-O may take seconds for one, and cri-dockerd knows no class of it.
const askSilentAgain = time.Minute

// silent returns the newest container of each ready sandbox that has only exited ones and whose class is not known: of a pod that kept
// crashing while this service started.
func (l *Lister) silent(all *cri.Listing) map[string]bool {
	newest, runs := map[string]*cri.Container{}, map[string]bool{}
	for i := range all.Containers {
		c := &all.Containers[i]
		runs[c.SandboxID] = runs[c.SandboxID] || c.State != cri.Exited
		if last := newest[c.SandboxID]; last == nil || c.CreatedAt.After(last.CreatedAt) {
			newest[c.SandboxID] = c
		}
	}
	now := l.opt.Now()
	maps.DeleteFunc(l.silentAt, func(_ string, at time.Duration) bool { return now-at >= askSilentAgain })
	silent := map[string]bool{}
	for i := range all.Sandboxes {
		s := &all.Sandboxes[i]
		c := newest[s.ID]
		if !s.Ready || c == nil || runs[s.ID] || len(l.last[s.ID].classified) > 0 {
			continue
		}
		if _, asked := l.silentAt[c.ID]; !asked {
			l.silentAt[c.ID], silent[c.ID] = now, true
		}
	}
	return silent
}

// classifiesExited reports whether the details of an exited container are sufficient to classify its pod. That it has run is not, as
// for one that runs: what its process would show is gone.
func classifiesExited(d cri.ContainerDetail) bool {
	return d.CgroupsPath != "" || d.Resources.OOMScoreAdj.Known
}

// detailed are containers of a sandbox with their details. Of the exited ones, only those are here that may show the class of their pod.
type detailed struct{ alive, exited []cri.ContainerDetail }
