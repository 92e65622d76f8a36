// Package fleet decides when a node of a fleet may make a gentle stop: one for a soft threshold or a limit.
//
// A threshold that is wrong on every node, or a leak in an image that runs on every node, must not stop the same
// workload everywhere within a minute. So a soft stop needs a permit of its zone and of its workload. The fleet may
// delay stops that relieve discomfort, never actions that keep a node alive: hard thresholds, reclaiming, direct kills,
// admission and drains do not ask.
//
// The states and rates of zones follow the node lifecycle controller of Kubernetes
// (https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction). The package differs from it in
// six places:
//
//  1. A zone counts nodes that want a soft stop, not nodes that are not ready.
//  2. A zone below [Rates].MinZone is always normal: a single node says nothing about a rollout.
//  3. A full zone has the rate of a partial one. The controller evicts from it at the normal rate, because the work can
//     move to another zone; here it cannot.
//  4. The rate follows from the counts each time. The controller changes it only with the state of the zone, so a
//     partial zone that outgrows LargeZone keeps rate 0.
//  5. Shares are compared in integers: in floating point, 55 of 100 is less than 0.55.
//  6. A workload has a rate, too, across all zones ([Rates].WorkloadInterval).
//
// The package is pure: it reads no file or clock, starts no goroutine, and gets its randomness from its caller.
package fleet
