// Package scenario contains the scenarios for virtual nodes. Each breaks something on a whole
// machine and names the pods that criguard must stop. In the end, all other pods must be alive, the
// kernel must have killed nothing, and nothing may be left over.
//
// A scenario is an entry in the table of the file for its kind: a name, the profiles it runs on,
// and a function that gets the node. It runs inside the machine, as root, with no other users.
// [Node] has the helpers, and the checks at the end that all scenarios share. [Machine] is all that
// they use of the machine itself, and test/world simulates one.
package scenario
