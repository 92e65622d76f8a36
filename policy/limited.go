package policy

import "time"

// Limited is a pod that was stopped for its limit of ephemeral storage. A kubelet keeps its volumes and logs, and if these alone
// exceed the limit, another stop would help as little.
type Limited struct {
	Sandbox string        `json:"sandbox"`        // the one that was stopped
	Back    string        `json:"back,omitempty"` // sandbox in which it was back, "" = not yet
	Kept    int64         `json:"kept"`           // bytes in its volumes and logs then, or when it was back
	Alarmed bool          `json:"alarmed,omitempty"`
	Holds   bool          `json:"holds,omitempty"` // its stop is held, since these alone exceed its limit
	Pod     string        `json:"pod"`             // namespace/name
	Seen    time.Duration `json:"-"`               // above its limit, in time since boot
}

// Limit records what is known of such a pod.
func (r *Restraint) Limit(uid string, l Limited) {
	if r.Limited == nil {
		r.Limited = map[string]Limited{}
	}
	if _, known := r.Limited[uid]; known || len(r.Limited) < maxStops {
		r.Limited[uid] = l
	}
}
