// Package report_test opens pages of criguard report in a real browser: one of a real stop, one of
// made-up passes with hostile names, and one without stops.
package report_test
