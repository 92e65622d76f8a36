// Package docs runs every command shown in README.md, docs/*.md and the documents for contributors:
// in a copy of the tree, in a Debian root, and against a node with a real containerd. A command
// that takes minutes runs in a shorter form, and a command that needs more than this setup must run
// in another test. A command that does not run anywhere fails the test.
package docs_test
