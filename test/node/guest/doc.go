// Command guest is the agent inside of a virtual node: it takes orders from a virtio port, a JSON line each, sets the node up or runs a
// scenario, and says what came of it the same way.
package main
