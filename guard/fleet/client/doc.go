// Package client gets permits for gentle stops from the fleet's agent (guard/fleet/agent), which runs on the same
// node. It implements eviction.Fleet.
//
// A pass never waits: [Client.Permit] answers from memory, and [Client.Run] talks to the agent beside the loop, one
// request at a time. The client trusts the agent with nothing but the answer yes or no. It connects to a fixed path,
// follows no redirect, limits the size and the time of an answer, and clamps every duration in it. Whatever the agent
// says, a stop also needs the node's own budget, and a hard stop asks neither.
//
// An agent that gives no valid answer, for any reason, leaves the node alone. The rules for a node that is alone are
// those of [fleet.Waiter]: the agent applies them while it runs and etcd does not answer, and the client while the
// agent does not answer. The client keeps the state of its waiter in the run directory, so that a restart refills no
// bucket, ends no episode and starts no clock again.
package client
