// Package hold keeps a configuration waiting that would stop a pod as soon as it is in force: a threshold of it is
// met already, which may be a mistake that its author has not seen yet. It decides what waits, says so, and keeps the
// thresholds that were in force, so that a restart with the same ones never waits.
package hold
