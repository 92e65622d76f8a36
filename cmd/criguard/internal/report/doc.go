// Package report writes what the guard did on a node as one HTML page: each stop with a
// plot of the signals around it, the ranking of that moment, and the configuration that
// was in force.
//
// The page holds all that it needs and asks no network for anything; a content security
// policy in it forbids that, and names the digests of the scripts that may run. All text
// from the node is escaped where it is written, and none of it is markup or script.
// Without scripts the plots are left out, and the tables tell the same.
//
// assets/uPlot.* are of uPlot 1.6.32, https://github.com/leeoniya/uPlot, under the MIT
// licence beside them: package/dist of the npm package "uplot", unchanged. A test holds
// them to their SHA-256 digests.
package report
