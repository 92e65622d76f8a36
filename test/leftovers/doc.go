// Command leftovers runs a command and then checks what it has left on the machine: files,
// processes, cgroups, mounts, loop devices, network interfaces, users and packages that were not
// there before. It lists each and fails if there are any. It ignores the caches of the tests and of
// Go.
//
//	go run ./test/leftovers go run ./test/demo
//
// Other programs use the machine at the same time, so only things that can belong to the command
// count. The command gets a temporary directory of its own, which must be empty at the end and
// identifies the command's processes. Elsewhere, names that contain "criguard" count, unless they
// belong to a running process. Directories of container runtimes count as a whole while no runtime
// is running.
package main
