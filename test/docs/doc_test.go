// Package docs runs every command that README.md, docs/*.md and those who work on criguard
// are shown: in a tree, in a Debian root, and against a node with a real containerd. What
// takes minutes is run shorter, what needs more by others; a command that nobody runs fails it.
package docs_test
