// Package hook runs operators' programs for conditions, stops and alarms, without delaying whoever posts
// them.
//
// It owns each hook's queue and process, and cleans up the process. A program that hangs, floods
// its output, leaves children behind or cannot be started does not affect the poster. No program
// starts while the gate is closed. A program does not inherit criguard's protection, a low
// oom_score_adj (proc(5)) and a high priority. Locked memory is not inherited over execve (mlockall(2)).
package hook
