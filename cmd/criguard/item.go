package main

import (
	"cmp"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/reclaim"
)

// itemName returns the name that users know a removed item by.
func itemName(it reclaim.Item) string { return cmp.Or(it.Name, it.ID) }

// itemAge returns an item's age, or "unknown".
func itemAge(it reclaim.Item) string {
	if it.AgeUnknown {
		return "unknown"
	}
	return cli.Age(time.Duration(it.Age))
}

// itemSize returns an item's size, or "-" if unknown.
func itemSize(it reclaim.Item) string {
	if it.Size <= 0 {
		return "-"
	}
	return api.FormatBytes(it.Size)
}
