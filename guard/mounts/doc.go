// Package mounts finds out which parts of the node this process cannot see. In a pod, that depends on the mounts of
// the pod.
package mounts
