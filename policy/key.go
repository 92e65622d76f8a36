package policy

import (
	"encoding/json"
	"math"
)

// Key is a criterion by which pods are ranked.
type Key uint8

// The keys. The larger value ranks first, except for the priority.
const (
	KeyCulprit     Key = iota // 1 if the pod is stopped first because it fills the pool, see Decide
	KeyOverRequest            // 1 if the usage is above the request, else 0
	KeyPriority               // the lower one ranks first
	KeyUsage                  // usage − request; may be negative
	KeyGrowth                 // per second
	KeyQoS                    // BestEffort, Burstable, Guaranteed, unknown
	keyCount
)

var keyNames = []string{"culprit", "over_request", "priority", "usage", "growth", "qos"}

// Unknown is the value of a key that is not known. It ranks last.
const Unknown = math.MinInt64

// ParseKey returns the key with the name that String returns.
func ParseKey(s string) (Key, error) { return parseName[Key](keyNames, s, "rank key") }

// String returns the key's name, as in the configuration's [rank] table.
func (k Key) String() string { return nameOf(keyNames, k, "key") }

// MarshalText returns the name.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

// KeyValue is the value of a key for one pod. In JSON, an unknown value is left out.
type KeyValue struct {
	Key   Key   `json:"key"`                           // its name
	Value int64 `json:"value,omitempty" unit:"by key"` // left out if unknown
}

// MarshalJSON leaves out an unknown value, but not 0.
func (v KeyValue) MarshalJSON() ([]byte, error) {
	j := struct {
		Key   Key    `json:"key"`
		Value *int64 `json:"value,omitempty"`
	}{Key: v.Key}
	if v.Known() {
		j.Value = &v.Value
	}
	return json.Marshal(j)
}

// UnmarshalJSON parses what MarshalJSON returns.
func (v *KeyValue) UnmarshalJSON(b []byte) error {
	type plain KeyValue
	*v = KeyValue{Value: Unknown}
	return json.Unmarshal(b, (*plain)(v))
}

// Known reports whether the key's value is known.
func (v KeyValue) Known() bool { return v.Value != Unknown }

// DefaultKeys returns the keys by which a resource is ranked unless the configuration sets others. Inodes
// and tasks have no request that could be exceeded, and a disk fills too slowly for a culprit.
func DefaultKeys(r Resource) []Key {
	switch r {
	case ResourcePIDs:
		return []Key{KeyCulprit, KeyPriority, KeyUsage}
	case ResourceInodes:
		return []Key{KeyPriority, KeyUsage}
	case ResourceDisk:
		return []Key{KeyOverRequest, KeyPriority, KeyUsage}
	default:
		return []Key{KeyCulprit, KeyOverRequest, KeyPriority, KeyUsage}
	}
}
