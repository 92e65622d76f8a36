// Package world runs the real service, guard.Serve with a real configuration, on a simulated node in virtual time: under
// testing/synctest, against the files of a simulated kernel (kernel.go), with cri/critest as the runtime, over pipes
// (pipe.go). A seed chooses what the node is and what happens to it (plan.go). Meanwhile the world checks after each step
// what must always hold (check.go), and writes down what happened (story.go).
//
// What waits in the real kernel would stop virtual time, so guard/machine replaces exactly that: clock, epoll, sockets.
// Everything else is what runs on a node, down to the parsing of the kernel's files and the writing of the history.
//
// The world acts only while every goroutine of the service waits. So the same seed has the same story.
package world
