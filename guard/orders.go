package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Orders are what operators have asked for and what is still in force. They
// outlive the service, in the runtime directory, but not a reboot.
type Orders struct {
	Pause *Pause `json:"pause,omitempty"`
	Drain *Drain `json:"drain,omitempty"`
}

// Pause is a time in which the guard watches and tells, but neither reclaims nor
// stops.
type Pause struct {
	Since  time.Duration `json:"since"` // since boot
	Until  time.Duration `json:"until"` // since boot
	Reason string        `json:"reason,omitempty"`
	By     Peer          `json:"by"`
}

// Drain is the wish that no sandbox runs that may be stopped.
type Drain struct {
	Since  time.Duration `json:"since"` // since boot
	Grace  time.Duration `json:"grace"` // a sandbox's own counts where it is shorter
	Reason string        `json:"reason,omitempty"`
	By     Peer          `json:"by"`
}

// Peer is who asked, as the kernel says.
type Peer struct {
	UID int `json:"uid"`
	PID int `json:"pid"`
}

// maxPaused bounds a pause: a guard that was forgotten is none.
const maxPaused = 24 * time.Hour

// HeldPaused says that the guard is paused.
const HeldPaused = "paused"

// savedOrders is the file of the orders. The times mean something on one boot
// alone.
type savedOrders struct {
	BootID string `json:"boot_id"`
	Orders
}

// errNoOrders is a file that cannot hold orders.
var errNoOrders = errors.New("implausible orders")

// loadOrders reads the orders of an earlier run on this boot. Those of another
// boot, and a pause that is over, are none; data that cannot be true is an error,
// with no orders.
func loadOrders(data []byte, bootID string, now time.Duration) (Orders, error) {
	var s savedOrders
	if err := json.Unmarshal(data, &s); err != nil {
		return Orders{}, fmt.Errorf("read orders: %w", err)
	}
	if s.BootID != bootID {
		return Orders{}, nil
	}
	if p := s.Pause; p != nil && (p.Since < 0 || p.Since > now || p.Until < p.Since || p.Until-p.Since > maxPaused) {
		return Orders{}, fmt.Errorf("read orders: pause from %s to %s: %w", p.Since, p.Until, errNoOrders)
	}
	if d := s.Drain; d != nil && (d.Since < 0 || d.Since > now || d.Grace < 0 || d.Grace > maxDrainGrace) {
		return Orders{}, fmt.Errorf("read orders: drain since %s: %w", d.Since, errNoOrders)
	}
	if s.Pause != nil && s.Pause.Until <= now {
		s.Pause = nil
	}
	return s.Orders, nil
}

// paused reports whether the guard may not act, and ends a pause whose time is
// over.
func (g *Guard) paused(now time.Duration, p *Pass) bool {
	if g.orders.Pause == nil {
		return false
	}
	if now < g.orders.Pause.Until {
		return true
	}
	g.orders.Pause = nil
	p.Command = &CommandView{Command: CommandResume, Reason: "the pause is over"}
	return false
}

// holdAll says of everything met that the pause holds it back.
func (g *Guard) holdAll(p *Pass) {
	for _, m := range g.pressure.Met {
		p.hold(m, HeldPaused)
	}
}
