package reclaim

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// Moment is one reading of both clocks.
type Moment struct {
	Boot time.Duration // since boot (CLOCK_BOOTTIME)
	Wall time.Time
}

// plausible is 1 March 2013 in Unix seconds, before any container was created: a clock that had not
// been set stamped any earlier time.
const plausible = 1362096000

// wallAge returns the age by the wall clock. It is zero if the creation time is not credible (missing,
// in the future, or stamped before the clock was set): a container or sandbox of unknown age counts as
// young.
func wallAge(created time.Time, now time.Time) time.Duration {
	if created.IsZero() || created.After(now) || created.Unix() < plausible && now.Unix() >= plausible {
		return 0
	}
	return now.Sub(created)
}

// sightings remembers when each container and sandbox was first seen, and since when each pod has shown
// no life. It reads the wall clock once per object, at the first sighting, and counts boot time from
// there, so that setting the clock ages nothing. The zero value has seen nothing. It is safe for
// concurrent use.
type sightings struct {
	mu    sync.Mutex
	first map[string]sighting
	quiet map[string]time.Duration // by pod: since when, in boot time
	alive map[string]bool          // pods that have shown life
	owned map[string]bool          // pods of a kubelet
}

type sighting struct {
	boot time.Duration
	age  time.Duration // at that time
}

// see records a listing and forgets the objects that are missing from it.
func (s *sightings) see(inv inventory, now Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := make(map[string]sighting, len(inv.Containers)+len(inv.Sandboxes))
	see := func(id string, created time.Time) {
		old, ok := s.first[id]
		if !ok {
			old = sighting{now.Boot, wallAge(created, now.Wall)}
		}
		first[id] = old
	}
	for _, c := range inv.Containers {
		see(c.ID, c.CreatedAt)
	}
	for _, b := range inv.Sandboxes {
		see(b.ID, b.CreatedAt)
	}
	quiet, lived, owned := make(map[string]time.Duration), make(map[string]bool), make(map[string]bool)
	for i, pod := range inv.podOf() {
		if inv.Containers[i].Labels[labelPodUID] != "" {
			owned[pod] = true
		}
	}
	for pod, alive := range inv.pods() {
		if alive || s.alive[pod] {
			lived[pod] = true
		}
		if alive {
			continue
		}
		since, ok := s.quiet[pod]
		if !ok {
			since = now.Boot
		}
		quiet[pod] = since
	}
	s.first, s.quiet, s.alive, s.owned = first, quiet, lived, owned
}

// mayReturn reports whether a pod is a kubelet's, and has never been seen alive: it ran before the runtime started.
func (s *sightings) mayReturn(pod string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[pod] && !s.alive[pod]
}

// age returns the age of a container or sandbox.
func (s *sightings) age(id string, created time.Time, now Moment) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.first[id]
	if !ok {
		return wallAge(created, now.Wall)
	}
	return seen.age + max(now.Boot-seen.boot, 0)
}

// since returns when an object was first seen, in boot time; math.MaxInt64 if it never was.
func (s *sightings) since(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, ok := s.first[id]; ok {
		return seen.boot
	}
	return math.MaxInt64
}

// quietFor returns for how long a pod has shown no life: no ready sandbox and no running container.
func (s *sightings) quietFor(pod string, now Moment) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, ok := s.quiet[pod]
	if !ok {
		return 0
	}
	return max(now.Boot-since, 0)
}

// inventory is a runtime's listing at one moment.
type inventory cri.Listing

// Labels in which a kubelet repeats the pod's identity on each container.
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodName      = "io.kubernetes.pod.name"
)

// podKey identifies the pod of a sandbox; without a UID, each sandbox is its own pod.
func podKey(b cri.Sandbox) string {
	if b.UID != "" {
		return podName(b.Namespace, b.Name, b.UID)
	}
	return b.ID
}

// podName identifies a pod by UID and name: without a kubelet, nothing keeps pods that were made from one file from
// sharing a UID.
func podName(namespace, name, uid string) string { return namespace + "/" + name + "/" + uid }

// podOf returns the key of each container's pod, in the order of the containers.
func (inv inventory) podOf() []string {
	bySandbox := make(map[string]string, len(inv.Sandboxes))
	for _, b := range inv.Sandboxes {
		bySandbox[b.ID] = podKey(b)
	}
	keys := make([]string, len(inv.Containers))
	for i, c := range inv.Containers {
		keys[i] = bySandbox[c.SandboxID]
		switch l := c.Labels; {
		case keys[i] != "":
		case l[labelPodUID] != "":
			keys[i] = podName(l[labelPodNamespace], l[labelPodName], l[labelPodUID])
		default:
			keys[i] = c.SandboxID
		}
	}
	return keys
}

// hasMore reports whether it has containers that another listing lacks.
func (inv inventory) hasMore(than inventory) bool {
	known := make(map[string]bool, len(than.Containers))
	for i := range than.Containers {
		known[than.Containers[i].ID] = true
	}
	return slices.ContainsFunc(inv.Containers, func(c cri.Container) bool { return !known[c.ID] })
}

// pods returns every pod and whether it shows life: a ready sandbox, or a container that runs or may
// run.
func (inv inventory) pods() map[string]bool {
	pods := make(map[string]bool, len(inv.Sandboxes))
	for _, b := range inv.Sandboxes {
		pods[podKey(b)] = pods[podKey(b)] || b.Ready
	}
	for i, key := range inv.podOf() {
		state := inv.Containers[i].State
		pods[key] = pods[key] || state == cri.Running || state == cri.Unknown
	}
	return pods
}

// uids returns the UIDs of which the runtime has a sandbox or container.
func (inv inventory) uids() map[string]bool {
	uids := make(map[string]bool, len(inv.Sandboxes))
	for _, b := range inv.Sandboxes {
		uids[b.UID] = true
	}
	for _, c := range inv.Containers {
		uids[c.Labels[labelPodUID]] = true
	}
	delete(uids, "")
	return uids
}
