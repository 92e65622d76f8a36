package cri

import (
	"fmt"
	"time"
)

// AwayTime exports awayTime to the external tests, which need critest.
const AwayTime = awayTime

// SetStopSandboxTimeout changes the deadline of StopSandbox.
func (c *Client) SetStopSandboxTimeout(d time.Duration) { c.stopSandbox = d }

// SetTimeout sets the timeout of calls on connections that are made from now on.
func (c *Connector) SetTimeout(d time.Duration) { c.opt.Timeout = d }

// HideProcess makes the runtime's process invisible, as in a PID namespace.
func (c *Connector) HideProcess() { c.serverPID = func(*Client) int { return 0 } }

// Failures describes the recorded failures of the endpoints; "" = none.
func (c *Connector) Failures() string {
	if c.lostSince == 0 && !c.gone && len(c.skipped) == 0 {
		return ""
	}
	return fmt.Sprintf("lost at %s, gone %t, skipped %v", c.lostSince, c.gone, c.skipped)
}
