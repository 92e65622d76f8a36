// Package simulate replays a trace: it makes the same passes as the service, in virtual time, on a node
// made from the trace. It does not touch the real node.
package simulate
