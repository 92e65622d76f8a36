// Package socket reads the address of a runtime, in each of its spellings. It is apart from package cri, because the
// configuration does not need a client.
package socket

import (
	"errors"
	"strings"
)

// Path returns the absolute path of the unix socket in an endpoint: unix:///path, unix:/path or /path.
func Path(endpoint string) (string, error) {
	path, _ := strings.CutPrefix(endpoint, "unix:")
	if len(path) < len(endpoint) {
		path, _ = strings.CutPrefix(path, "//")
	}
	switch {
	case endpoint == "":
		return "", errors.New("endpoint is empty")
	case !strings.HasPrefix(path, "/"):
		return "", errors.New("endpoint is no unix socket: want unix:///path or an absolute path")
	case strings.ContainsRune(path, 0):
		return "", errors.New("endpoint has a NUL byte")
	}
	return path, nil
}
