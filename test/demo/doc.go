// Command demo shows criguard's main job on this machine: a private containerd with real pods, a
// disk that fills up and a pod that leaks. criguard prunes just enough, stops exactly the leaking
// pod, and explains why. The demo exits with 0 only if all of this happened, and leaves nothing
// behind.
package main
