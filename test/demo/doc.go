// Command demo shows criguard's main job on this machine: a private containerd
// with real pods, a disk that fills and a pod that leaks. criguard prunes just
// enough, stops exactly the leaking pod, and says why. It exits 0 only if all of
// that was true, and leaves nothing behind.
package main
