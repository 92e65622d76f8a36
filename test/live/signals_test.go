package live_test

import "syscall"

const (
	hangup    = syscall.SIGHUP
	interrupt = syscall.SIGINT
)
