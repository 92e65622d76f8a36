// Package words puts what the guard did into words: for the history, the explanation of a
// pass, the live view and the report. It reads records and decides nothing.
package words
