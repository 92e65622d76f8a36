// Package agent connects a node with its fleet: it answers the node's guard over a unix socket, and asks etcd for the
// permits of soft stops.
//
// The agent runs as a process of its own, without privileges, because it has a connection to the network and the guard
// has none. It answers every request at once, from what it knows; one goroutine makes all calls to etcd. [fleet.Waiter]
// decides when to ask, and what a node may do that is alone.
//
//	PUT    /v1/state                the pools that want a soft stop, the configuration's digest and the version
//	PUT    /v1/permits/{pool}/{sandbox} request a permit for a pod; pending, denied or granted. May be repeated
//	DELETE /v1/permits/{pool}/{sandbox} withdraw the request, or give back a permit that was not used
//	GET    /v1/status               what the agent knows
//	GET    /v1/metrics              the same, for Prometheus
//
// A permit that the guard was given counts as used, unless it is given back before its deadline.
package agent
