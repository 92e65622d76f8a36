// Package agenttest has agents of a fleet for tests of the guard, which connects to them: an honest one, and those that
// hang, flood, or lie. Each is a function that serves one connection. Start runs a real one, and Status asks one.
package agenttest
