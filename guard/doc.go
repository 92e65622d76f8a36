// Package guard is the service. It opens the node, connects the packages below it, and runs until its context
// ends: the loop of passes (guard/eviction), the kernel's signals (guard/node), the listing of pods
// (guard/inventory), their stops (guard/stop), garbage collection (guard/gc), the control socket
// (guard/control), hooks, metrics and the history.
//
// A Look inspects the node once, without the service, and stops nothing.
package guard
