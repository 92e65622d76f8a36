// Package critest is a container runtime for tests: a gRPC server on a unix
// socket that speaks the Container Runtime Interface v1 as containerd 1.6,
// containerd 2 and CRI-O do, with their quirks, and without containers.
//
//	s := critest.New(t, critest.CRIO)
//	pod := s.AddPod(critest.PodSpec{Name: "web", Containers: []critest.ContainerSpec{{Name: "app", IgnoreTERM: true}}})
//	release := s.Inject(critest.Fault{Method: "StopContainer", ID: pod.Containers[0].ID, Hang: true})
//	client, err := cri.Dial(s.Endpoint(), time.Second)
//
// A Server keeps apart what is true (does a container still have processes?
// Server.Alive, Server.Cgroups) and what the runtime says. Things happen to it
// from outside: Kill, Exit, FreezeShim, BreakNetwork, Restart. Calls can be made to
// hang, fail, answer without effect or find their object gone (Inject), and every
// call is on record (Calls, WaitCalls).
//
// Contract holds a runtime to what package cri relies on. It runs against each
// dialect here, and against real runtimes that offer a Target.
//
// Everything is safe for use from several goroutines. Time is the real one.
package critest
