// Package policy decides: which thresholds are met, what pressure that is, which
// pod ranks first, and whether it may be stopped now.
//
// It owns the words of the decision (signals, quantities, thresholds,
// conditions, candidates, ranks, restraint) and the facts about the kubelet that
// they rest on. It is pure: it reads no file, asks no clock, starts no
// goroutine, and imports nothing but the standard library. Time comes in as
// "now", the time since boot (CLOCK_BOOTTIME), so that wall-clock jumps change
// nothing and a trace can be replayed in virtual time.
//
// The semantics follow the kubelet's node-pressure eviction
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/)
// and differ from it, deliberately, in eight places:
//
//  1. Signals are independent: one that cannot be read, or that is still met,
//     neither blinds nor vetoes another ([Evaluate]).
//  2. The order of acting is fixed: memory before PIDs before disk, hard before
//     soft ([Threshold.Compare]).
//  3. A soft grace period is forgiven only after the signal was clear for
//     [Settings].SoftForgive, not by one good sample, and is not served while
//     nobody looked ([Evaluate]).
//  4. After reclaiming, the chosen signal alone is judged again, at its
//     threshold plus its minimum reclaim ([Relieved]).
//  5. Missing usage ranks last, not first ([Rank]).
//  6. Inode ranking compares inodes with inodes ([Rank]).
//  7. A pod whose stop cannot help the signal is no candidate ([Rank]).
//  8. After a stop, the next one waits until the victim's bytes are back
//     ([Effect.Settled]), unless a pod is seen to take them ([Standing]).
//
// When values collide: never a wrong stop, before the node's survival, before
// speed. Whatever is unknown here therefore holds a stop back rather than
// causing one.
package policy
