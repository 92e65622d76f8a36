// Package control implements the control socket: the server that answers the command line, and its client.
// Slow, silent or malformed clients, however many, cost little and do not block other clients.
//
// The socket's permissions decide who may connect, and the kernel identifies each peer (SO_PEERCRED). The
// package changes no state itself: the implementations of Answerer and Operator do.
package control
