package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// kubernetesPrefix begins the keys of an API server of Kubernetes.
const kubernetesPrefix = "/registry/"

// keys builds the keys of one fleet.
type keys string

func keysOf(fleet string) keys { return keys("/criguard/v1/" + fleet + "/") }

func (k keys) members() string                 { return string(k) + "m/" }
func (k keys) wants() string                   { return string(k) + "u/" }
func (k keys) zoneMembers(zone string) string  { return k.members() + zone + "/" }
func (k keys) zoneWants(zone string) string    { return k.wants() + zone + "/" }
func (k keys) member(zone, node string) string { return k.zoneMembers(zone) + node }
func (k keys) want(zone, node string) string   { return k.zoneWants(zone) + node }
func (k keys) zoneSlots() string               { return string(k) + "s/" }
func (k keys) zoneSlot(zone string) string     { return k.zoneSlots() + zone }
func (k keys) settling() string                { return string(k) + "settling" }
func (k keys) pause() string                   { return string(k) + "policy/pause" }
func (k keys) rates() string                   { return string(k) + "policy/rates" }

// workloadSlot hashes the name: names of owners may be long, and they need not be readable in etcd.
func (k keys) workloadSlot(workload string) string {
	sum := sha256.Sum256([]byte(workload))
	return string(k) + "w/" + hex.EncodeToString(sum[:])
}

// splitNode returns the zone and the node in a key below members or wants, and false for any other key.
func splitNode(prefix, key string) (zone, node string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", "", false
	}
	zone, node, ok = strings.Cut(rest, "/")
	return zone, node, ok && node != "" && !strings.Contains(node, "/")
}

// prefixEnd returns the end of the range of all keys with a prefix, which is not empty and does not end in 0xff.
func prefixEnd(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string([]byte{prefix[last] + 1})
}
