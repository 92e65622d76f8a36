package policy

import "math"

// Key is one thing that pods are ranked by.
type Key uint8

// The keys. The larger value ranks first, but for the priority.
const (
	KeyOverRequest Key = iota // 1 when the usage is above the request, else 0
	KeyPriority               // the lower ranks first
	KeyUsage                  // usage − request; may be negative
	KeyGrowth                 // bytes per second
	KeyQoS                    // BestEffort, Burstable, Guaranteed, not known
	keyCount
)

var keyNames = []string{"over_request", "priority", "usage", "growth", "qos"}

// Unknown is the value of a key that is not known. It ranks last.
const Unknown = math.MinInt64

// ParseKey finds a key by the name String gives.
func ParseKey(s string) (Key, error) { return parseName[Key](keyNames, s, "rank key") }

// String is the key's name, as in the configuration's [rank] table.
func (k Key) String() string { return nameOf(keyNames, k, "key") }

// MarshalText gives the name.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

// KeyValue is what a key is for one pod.
type KeyValue struct {
	Key   Key   `json:"key"`
	Value int64 `json:"value"` // Unknown when it is not known
}

// Known reports whether the key's value is known.
func (v KeyValue) Known() bool { return v.Value != Unknown }

// DefaultKeys is what a resource is ranked by unless the configuration says
// otherwise. Inodes and tasks have no request that could be exceeded.
func DefaultKeys(r Resource) []Key {
	if r == ResourceInodes || r == ResourcePIDs {
		return []Key{KeyPriority, KeyUsage}
	}
	return []Key{KeyOverRequest, KeyPriority, KeyUsage}
}
