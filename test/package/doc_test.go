// Package package builds the deb and rpm packages and looks at them: what is in them, what
// the tools of Debian and Fedora say of them, what an installation, an upgrade and a removal
// change, and whether the binaries run on the other architectures.
package package_test
