// Package words describes what criguard did, for the history, the explanation of a pass, the live
// view and the report. It only reads records.
package words
