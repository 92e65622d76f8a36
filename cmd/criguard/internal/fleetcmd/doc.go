// Package fleetcmd has the commands below `criguard fleet`: the agent, and what operators ask of the fleet in etcd.
package fleetcmd
