// Package simulate replays a trace of a fleet in virtual time: the counts of its zones, and the nodes that request
// permits. Its result is idealised: requests are served in their order, while nodes of a real fleet ask at random times.
//
// A trace has one JSON value per line. Each line is decided on its own, in this order: slots and patience that end up to
// and including its time, "withdraw", "requests", and then grants, in the order of the requests' times and then of the
// nodes' names. A request that is held does not block the ones behind it.
package simulate
