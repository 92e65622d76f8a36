// Package rundir owns the directory under /run where the service keeps its socket, its lock and its
// state files. It defines the paths, the lock that admits a single service, the read permissions of
// each file, and the atomic replacement of files. It does not interpret their content.
package rundir
