// Command criguard keeps a container node alive: it watches memory, disk, inodes
// and PIDs, prunes what nobody needs, and stops the one pod that ranks first
// when the pressure persists. It talks to the container runtime's CRI socket
// and to the kernel, and to nothing else.
package main
