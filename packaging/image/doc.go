// Command image writes an image of criguard for each architecture given to it, from existing static
// binaries. `make image` runs it.
//
// An image is an OCI archive with one layer, which holds /criguard and nothing else: no shell, no
// libc, no base image. Builds are reproducible: every timestamp is the commit's, and nothing depends
// on the build machine.
package main
