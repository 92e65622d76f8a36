// Command packaging makes a deb and an rpm of criguard for each architecture that it is
// told, from binaries that are built already. It is run by `make packages`.
//
// nfpm.yaml says what is in a package; this program makes what is not in the tree as such:
// the configuration in observe mode, compressed man pages and changelogs, completions, and
// a version that dpkg and rpm sort rightly. The same commit gives the same bytes on any
// machine: every time is that of the commit, and nothing of the builder gets in.
//
// The rules are those of the Debian Policy Manual (chapters 6, 9.3 and 12) and of Fedora's
// packaging guidelines for systemd, but that no package enables or starts the service: a
// guard that may stop pods is switched on by whoever answers for the node.
package main
