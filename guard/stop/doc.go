// Package stop stops pods for the eviction manager: through the runtime that answers at the time, or directly
// with SIGKILL. It then removes what a stopped pod left on a full disk.
//
// It never decides what is stopped. How a stop escalates is in package reclaim; the calls are StopContainer,
// StopPodSandbox and RemoveContainer of the CRI (k8s.io/cri-api).
package stop
