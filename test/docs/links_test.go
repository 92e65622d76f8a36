package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors returns the anchors of a document's headings, as GitHub forms them.
func anchors(text string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Every link to a file in the tree, and to an anchor in it, resolves.
func TestLinksLead(t *testing.T) {
	found := 0
	for _, name := range append(documents(t), "CHANGELOG.md") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(root, name)
			if path != "" {
				target = filepath.Join(root, filepath.Dir(name), path)
			}
			there, err := os.ReadFile(target)
			if err != nil || anchor != "" && !slices.Contains(anchors(string(there)), anchor) {
				t.Errorf("%s: %s leads nowhere: %v", name, m[1], err)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links found", found)
	}
}

func TestAnchors(t *testing.T) {
	if got := anchors("# One\ntext\n## `[rank]`, and so on\n"); !slices.Equal(got, []string{"one", "rank-and-so-on"}) {
		t.Errorf("%q", got)
	}
}
