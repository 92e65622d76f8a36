// Package policy decides which thresholds are met, which pressure that means, which pod's stop
// helps, and whether it may be stopped now.
//
// It defines the terms of the decision (signals, quantities, thresholds, conditions, candidates, ranks,
// restraint) and the facts about the kubelet behind them. It is pure: it reads no file or clock, starts
// no goroutine, and imports only the standard library. Its callers pass time as "now", the time since
// boot (CLOCK_BOOTTIME), so that jumps of the wall clock have no effect and a trace can be replayed in
// virtual time.
//
// The semantics follow the kubelet's node-pressure eviction
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/) and deliberately
// differ from it in eight places:
//
//  1. Signals are independent: a signal that cannot be read, or that is still met,
//     neither blinds nor vetoes another ([Evaluate]).
//  2. The order of acting is fixed: memory before PIDs before disks ([Pool]), and in each of
//     them hard before soft.
//  3. A soft grace period is forgiven only after the signal was clear for
//     [Settings].SoftForgive, not after one good sample. A gap between readings counts for at most
//     [Settings].UnseenAtMost ([Evaluate]).
//  4. After reclaiming, only the chosen signal is judged again, at its threshold
//     plus its minimum reclaim ([Relieved]).
//  5. Missing usage ranks last, not first ([Rank]).
//  6. Inode ranking compares inodes with inodes ([Rank]).
//  7. A pod whose stop cannot help the signal is not a candidate ([Rank]).
//  8. The pod that fills a pool is stopped first; no other pod is stopped if stops cannot help ([Decide]).
//
// When goals conflict, avoiding a wrong stop comes first, then the node's survival, then speed.
// An unknown usage therefore holds a stop back and never causes one.
package policy
