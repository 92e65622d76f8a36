// Command guest is the agent inside a virtual node. It receives orders from a virtio port, one JSON
// line each, sets the node up or runs a scenario, and reports the result in the same way.
package main
