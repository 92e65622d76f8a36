// Command criguard keeps a container node alive. It watches memory, disk, inodes and PIDs, removes
// unused containers, images and logs, and stops the pod that relieves the shortage when the pressure
// persists. It talks only to the container runtime's CRI socket and to the kernel.
package main
