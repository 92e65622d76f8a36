// Package safetext makes text from pods, runtimes and operators safe to print. Names and reasons
// may contain characters that move a terminal's cursor, reverse the text direction or are
// invisible. The package replaces each of them with an escape that JSON reads as the same character
// (RFC 8259, section 7), so that one function serves tables, JSON and logs. It never drops text.
package safetext
