package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SavedOrders is the content of the orders file. Its times are valid only for the boot that wrote it.
type SavedOrders struct {
	BootID string `json:"boot_id"`
	Orders
}

// errNoOrders reports an orders file with impossible times.
var errNoOrders = errors.New("implausible orders")

// LoadOrders reads the orders of an earlier run on this boot. It ignores orders of another boot, and a pause or
// a protection that has ended. If the data is invalid, it returns an error and no orders.
func LoadOrders(data []byte, bootID string, now time.Duration) (Orders, error) {
	var s SavedOrders
	if err := json.Unmarshal(data, &s); err != nil {
		return Orders{}, fmt.Errorf("read orders: %w", err)
	}
	if s.BootID != bootID {
		return Orders{}, nil
	}
	if p := s.Pause; p != nil && (p.Since < 0 || time.Duration(p.Since) > now || p.Until < p.Since || time.Duration(p.Until-p.Since) > MaxPaused) {
		return Orders{}, fmt.Errorf("read orders: pause from %s to %s: %w", p.Since, p.Until, errNoOrders)
	}
	if d := s.Drain; d != nil && (d.Since < 0 || time.Duration(d.Since) > now || d.Grace < 0 || time.Duration(d.Grace) > MaxDrainGrace) {
		return Orders{}, fmt.Errorf("read orders: drain since %s: %w", d.Since, errNoOrders)
	}
	for _, p := range s.Protected {
		since, until := time.Duration(p.Since), time.Duration(p.Until)
		if since < 0 || since > now || until < since || until-since > MaxPaused {
			return Orders{}, fmt.Errorf("read orders: protection of %s from %s to %s: %w", p.Pod, since, until, errNoOrders)
		}
	}
	if s.Pause != nil && time.Duration(s.Pause.Until) <= now {
		s.Pause = nil
	}
	s.Protected = slices.DeleteFunc(s.Protected, func(p Protection) bool { return time.Duration(p.Until) <= now })
	return s.Orders, nil
}

// ProtectedBy begins the reason for an operator's protection, as a ranking shows it.
const ProtectedBy = "protected by "

// Line summarizes the orders in force for the status line, "" if there are none. now is the time since boot.
func (o Orders) Line(now time.Duration) string {
	var parts []string
	because := func(reason string) string {
		if reason == "" {
			return ""
		}
		return " (" + reason + ")"
	}
	if p := o.Pause; p != nil {
		parts = append(parts, "PAUSED until "+time.Now().Add(time.Duration(p.Until)-now).Format("15:04:05")+because(p.Reason))
	}
	if d := o.Drain; d != nil {
		parts = append(parts, "DRAINED"+because(d.Reason))
	}
	if n := len(o.Protected); n > 0 {
		parts = append(parts, fmt.Sprintf("%d PROTECTED", n))
	}
	return strings.Join(parts, ", ")
}
