// Command packaging builds a deb and an rpm of criguard for each architecture given to it, from
// existing binaries. `make packages` runs it.
//
// nfpm.yaml lists the contents of a package. This program generates the files that are not in the
// tree: the configuration in observe mode, compressed man pages and changelogs, completions, and a
// version that dpkg and rpm sort correctly. Builds are reproducible: every timestamp is the
// commit's, and nothing depends on the build machine.
//
// The packages follow the Debian Policy Manual (chapters 6, 9.3 and 12) and Fedora's packaging
// guidelines for systemd, with one exception: no package enables or starts the service. A guard
// that may stop pods must be enabled explicitly.
package main
