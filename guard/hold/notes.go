package hold

import "strings"

// Notes are what status says about reloads.
type Notes struct {
	Rejected error    // why the last reload was rejected; nil = it was not
	Later    []string // keys of the configuration in force that take effect at the next start
	Warnings []string // of the last reload that was not rejected
}

// String returns the notes, each on a line. A rejected configuration has one line per mistake.
func (n *Notes) String() string { return strings.Join(n.all(), "\n") }

// Line returns the first line of each note.
func (n *Notes) Line() string {
	all := n.all()
	for i := range all {
		all[i], _, _ = strings.Cut(all[i], "\n")
	}
	return strings.Join(all, "; ")
}

func (n *Notes) all() (all []string) {
	if n.Rejected != nil {
		all = append(all, "the last reload was rejected: "+n.Rejected.Error())
	}
	return append(append(all, n.later()...), n.Warnings...)
}

func (n *Notes) later() []string {
	if len(n.Later) == 0 {
		return nil
	}
	return []string{"takes effect at the next start: " + strings.Join(n.Later, ", ")}
}

// Applied says in one line what a reload put in force: the keys that changed, and those that take effect at the next
// start.
func (n *Notes) Applied(changed []string) string {
	done := "reloaded"
	if len(changed) > 0 {
		done += ": " + strings.Join(changed, ", ")
	} else if len(n.Later) == 0 {
		done += "; nothing has changed"
	}
	return strings.Join(append([]string{done}, n.later()...), "; ")
}
