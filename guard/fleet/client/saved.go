package client

import (
	"bytes"
	"encoding/json"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/rundir"
)

// stateFile keeps the client's state in the run directory.
const stateFile = "fleet.json"

// savedState is the part of the state that outlives a restart of the service, but not of the node.
type savedState struct {
	BootID string      `json:"boot_id"`
	Fleet  fleet.Saved `json:"fleet"`
}

// load continues where a client of the same boot stopped. Without its state, the client starts from the beginning.
func (c *Client) load() {
	if b, err := c.opt.Dir.ReadFile(stateFile, c.opt.Access); err == nil {
		c.saved = b
		c.restore(b)
	}
}

func (c *Client) restore(b []byte) {
	var s savedState
	now := c.opt.Now()
	if !c.enabled || json.Unmarshal(b, &s) != nil || s.BootID != c.opt.BootID || s.Fleet.AloneSince > now {
		return
	}
	c.waiter.Restore(s.Fleet, now)
	for p := range s.Fleet.Held {
		if int(p) < len(c.pools) {
			c.pools[p].wants, c.pools[p].asked = true, now // grace periods have started again
		}
	}
}

// save writes the state if it has changed.
func (c *Client) save() {
	c.mu.Lock()
	s := savedState{c.opt.BootID, c.waiter.Save()}
	c.mu.Unlock()
	if c.saved == nil && len(s.Fleet.Held) == 0 && s.Fleet.AloneSince == 0 && s.Fleet.Paused == 0 {
		return
	}
	for p := range s.Fleet.Held {
		s.Fleet.Held[p] = 0 // without patience, the time means nothing
	}
	b, err := json.Marshal(s)
	if err != nil || bytes.Equal(b, c.saved) {
		return
	}
	if c.opt.Access.Replace(string(c.opt.Dir), stateFile, b, !rundir.Synced) == nil { // else the next round trip tries again
		c.saved = b
	}
}
