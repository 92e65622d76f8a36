// Package world runs the real service, guard.Serve with a real configuration, on a simulated node in virtual time: under
// testing/synctest, against the files of a simulated kernel (kernel.go), with cri/critest as the runtime, over pipes
// (pipe.go). A seed chooses what the node is and what happens to it (plan.go). Meanwhile the world checks after each step
// what must always hold (check.go), and writes down what happened (story.go).
//
// What waits in the real kernel would stop virtual time, so guard/machine replaces exactly that: clock, epoll, sockets.
// Everything else is what runs on a node, down to the parsing of the kernel's files and the writing of the history.
//
// The world also plays scripts of test/node/scenario (node_test.go). It is the machine that executes their commands and starts
// their pods (machine_test.go), so that configurations, pods and expectations are those of the virtual nodes. Some things differ:
//
//   - The speed of an emulated processor decides how fast a workload without a rate is, how long a kill takes, and when a reading
//     comes. In the world, these are constants, so that a run repeats.
//   - The memory that a node's system takes varies, and compressed swap takes some. In the world, the system's is constant, and
//     swap takes none.
//   - Only one disk of the world may run short. Another one, on which some files may be, always has room (places.go).
//   - The world only has the cgroupfs driver. In place of the kernel's OOM killer, it ends when memory runs out.
//
// So the world finds a wrong choice of victim within a second. Only a virtual node shows that criguard is fast enough, and that the
// kernel and the runtime behave as simulated.
//
// The world and the loop of the service act only while all other goroutines of the service wait. So the same seed has the same story.
package world
