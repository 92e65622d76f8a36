// Package package builds the deb and rpm packages and checks them: their contents, the verdict of
// Debian's and Fedora's tools, the effects of an installation, an upgrade and a removal, and that
// the binaries run on the other architectures.
package package_test
