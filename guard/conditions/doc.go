// Package conditions publishes the pressure conditions to other programs on the node, as a file.
package conditions
