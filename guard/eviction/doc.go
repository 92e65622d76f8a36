// Package eviction makes eviction passes: it observes the node, evaluates the thresholds, reclaims, chooses
// a victim, stops it, and records what it did and why. A Manager makes the passes, and a Loop decides when.
//
// The Manager sees the node only through four interfaces: Kernel, Runtime, Reclaimer and Stopper. A fifth,
// Fleet, may delay gentle stops: those for soft thresholds and limits. The methods of a Manager must be called
// from one goroutine. Reclaims and stops are jobs that run beside it. A pass waits for nothing but a fresh
// listing before a stop, and only if an unlisted pod may be the right one.
package eviction
