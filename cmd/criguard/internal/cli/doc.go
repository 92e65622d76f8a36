// Package cli has what all commands of the binary share: exit codes, how they print, and flags with a type of their own.
package cli
