// Package fleet checks the protocol of a fleet against a real etcd: its state, its permits, its roles, and what a node
// reports about an etcd that fails.
package fleet_test
