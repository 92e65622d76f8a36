// Command gotest runs go test on packages and prints what failed and which tests were skipped, which go test alone does
// not tell of packages that pass.
//
// With -again, each failed test runs once more, alone: tests that wait for real programs may fail on a machine that is
// too busy. A test that passes then is printed as FLAKY, with both logs, and the run passes. Nothing runs again if more
// than two tests failed, or if the failure cannot come from a busy machine: after a data race, a panic, a hang, a leak,
// the stop of an innocent pod, or an out-of-memory kill by the kernel.
package main
