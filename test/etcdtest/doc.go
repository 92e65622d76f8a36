// Package etcdtest runs a real etcd for tests: one member or several on loopback, with TLS and roles, and the faults that
// a test injects. Everything ends with the test.
package etcdtest
