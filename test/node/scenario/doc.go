// Package scenario is what is tried on virtual nodes: each scenario breaks something on a whole machine and says which pod must go, and
// then all others must still be there, the kernel must have killed nothing, and nothing may be left over.
//
// A scenario is one entry in the table of the file that has its kind: a name, the profiles it runs on, and a function that is given the node.
// It runs inside of the machine, as root, with nobody else there. [Node] has what it needs; what it must check in the end is
// checked for all of them in [Node] too.
package scenario
