// Package rundir owns the directory under /run where the service keeps its socket, its lock and its
// state files. It defines the paths, the lock that admits a single service, the read permissions of
// each file, and how state survives a restart, there and on disk: a bounded read and an atomic
// replacement. It does not interpret the content of files.
package rundir
