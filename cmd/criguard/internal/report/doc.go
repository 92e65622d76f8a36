// Package report writes an HTML page that shows what criguard did on a node: each stop with a plot
// of the signals around it, the ranking at that moment, and the configuration in force.
//
// The page is self-contained and makes no network requests. Its content security policy forbids
// them and lists the digests of the scripts that may run. All text from the node is escaped when it
// is written, so none of it becomes markup or script. Without scripts, the plots are missing and
// the tables show the same data.
//
// assets/uPlot.* come from uPlot 1.6.32, https://github.com/leeoniya/uPlot, and are unchanged
// copies of package/dist in the npm package "uplot". The MIT licence is in the same directory. A
// test compares the files with their SHA-256 digests.
package report
