// Package hook runs operators' programs for events, beside whatever posts them.
//
// It owns the queue of each hook, its process and that process's end: a program
// that hangs, floods its output, leaves children behind or cannot be started costs
// its poster nothing. Nothing is started while the [Gate] is shut.
//
// It never decides what an event is, never logs, and never lets a program inherit
// what keeps the guard alive: a low oom_score_adj (proc(5)) and a high priority.
// Locked memory is not inherited over execve (mlockall(2)).
package hook
