package etcd

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// MachineIDPath is the file with the ID of the machine (machine-id(5)).
const MachineIDPath = "/etc/machine-id"

// nodeApplication is the message that makes the suffix of a name specific to fleets. machine-id(5) asks programs to
// publish only a keyed hash of the ID.
const nodeApplication = "criguard fleet node v1"

// NodeName returns the name of a node in the keys: the given name, or the host name if it is empty, and a suffix derived
// from the machine ID in the file at path, because hosts of many sites share names such as "localhost". Letters become
// lower case, and all characters but [a-z0-9.-] become "-".
func NodeName(name, path string) (string, error) {
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("read host name: %w", err)
		}
		name = host
	}
	id, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read machine ID: %w", err)
	}
	return nodeName(name, string(id))
}

func nodeName(name, machineID string) (string, error) {
	id, err := hex.DecodeString(strings.TrimSpace(machineID))
	if err != nil || len(id) != 16 {
		return "", errors.New("read machine ID: not 32 hexadecimal digits (hint: systemd-machine-id-setup)")
	}
	sum := hmac.New(sha256.New, id)
	sum.Write([]byte(nodeApplication))
	clean := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	const longest = 200
	return clean[:min(len(clean), longest)] + "-" + hex.EncodeToString(sum.Sum(nil)[:6]), nil
}
