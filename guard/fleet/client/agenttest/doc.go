// Package agenttest has agents of a fleet for tests of the guard, which connects to them: an honest one, and those that
// hang, flood, or lie. Each is a function that serves one connection. Status asks a real one.
package agenttest
