// Command install fetches and builds the programs that the tests and the demo need: container
// runtimes, promtool, etcd and, as root, a Debian root for package tests. It installs nothing on the
// system: everything is in the lab's cache directory. A second run only lists what is there.
package main
