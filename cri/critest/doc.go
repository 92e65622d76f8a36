// Package critest is a container runtime for tests: a gRPC server on a unix socket that implements the
// Container Runtime Interface v1 like containerd 1.6, containerd 2 and CRI-O, including their quirks,
// but runs no containers.
//
//	s := critest.New(t, critest.CRIO)
//	pod := s.AddPod(critest.PodSpec{Name: "web", Containers: []critest.ContainerSpec{{Name: "app", IgnoreTERM: true}}})
//	release := s.Inject(critest.Fault{Method: "StopContainer", ID: pod.Containers[0].ID, Hang: true})
//	client, err := cri.Dial(s.Endpoint(), time.Second)
//
// A Server separates the truth (does a container still have processes? see Server.Alive and
// Server.Cgroups) from the runtime's report. A test changes the truth from outside with Kill, Exit,
// FreezeShim, BreakNetwork, Stop and Start. With Inject it makes calls hang, fail, succeed without effect
// or find their object gone. Calls and WaitCalls return the recorded calls.
//
// Contract checks that a runtime behaves as package cri expects. It runs against each dialect here, and
// against real runtimes that provide a Target.
//
// Everything is safe for concurrent use. Time is real.
package critest
