// Package docs runs every command that README.md and docs/*.md show: in a tree, in a Debian
// root, and against a node with a real containerd. A command that nobody runs fails it.
package docs_test
