package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config"
)

// shown is a command in a document, and its place.
type shown struct {
	text, at string
	inline   bool // within a sentence, not in a block: it may be a placeholder
}

// programs are those whose mention within a sentence is a command to run.
var programs = []string{"criguard", "systemctl", "journalctl", "make", "apt-get", "dpkg", "rpm", "curl", "go"}

var (
	heredoc  = regexp.MustCompile(`<<'?(\w+)'?`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
)

// extract lists the commands of a document in order.
func extract(name, text string) []shown {
	var list []shown
	fence, end := "", "" // the language of the current block, and the end of the here-document
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		last := len(list) - 1
		switch {
		case end != "":
			list[last].text += "\n" + line
			if line == end {
				end = ""
			}
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = line[3:] + "."
		case strings.HasPrefix(line, "```"):
			fence = ""
		case fence == "sh.":
			if last >= 0 && strings.HasSuffix(list[last].text, "\\") {
				list[last].text += "\n" + line
			} else if line = strings.TrimSpace(withoutComment(line)); line != "" {
				list = append(list, shown{line, at, false})
			}
			if m := heredoc.FindStringSubmatch(line); m != nil {
				end = m[1]
			}
		case fence == "":
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				if words := strings.Fields(m[1]); len(words) > 1 && slices.Contains(programs, words[0]) {
					list = append(list, shown{m[1], at, true})
				}
			}
		}
	}
	return list
}

// withoutComment cuts off everything from " #" on, the only form of comment in the documents.
func withoutComment(line string) string {
	before, _, _ := strings.Cut(line, " #")
	return strings.TrimRight(before, " ")
}

// documents returns the names of all documents with commands, relative to the tree's root.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	names := []string{"README.md", "CONTRIBUTING.md", "test/node/README.md", "test/lab/README.md"}
	for _, file := range files {
		names = append(names, "docs/"+filepath.Base(file))
	}
	return names
}

func commandsOf(t *testing.T, name string) []shown {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return extract(name, string(text))
}

var tomlBlock = regexp.MustCompile("(?s)```toml\n(.*?)```")

// Every configuration in a document is valid and changes something.
func TestConfigurationsAreGood(t *testing.T) {
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range tomlBlock.FindAllStringSubmatch(string(text), -1) {
			cfg, err := config.Parse(name, strings.NewReader(m[1]))
			if err != nil || len(cfg.Diff(config.Default())) == 0 || len(cfg.Notes()) > 0 {
				t.Errorf("%v, notes %v, changes %v:\n%s", err, cfg.Notes(), cfg.Diff(config.Default()), m[1])
			}
		}
	}
}

func TestExtract(t *testing.T) {
	const text = "Say `criguard rank` or `status`.\n```toml\ncriguard not\n```\n```sh\nmake build   # why\n\ncat > x <<'END'\n# a\nEND\na \\\n  b\n```\nor `make it`, and `jq .`"
	var got []string
	for _, c := range extract("x.md", text) {
		got = append(got, fmt.Sprintf("%s %v %q", c.at, c.inline, c.text))
	}
	want := []string{
		`x.md:1 true "criguard rank"`, `x.md:6 false "make build"`, `x.md:8 false "cat > x <<'END'\n# a\nEND"`, `x.md:11 false "a \\\n  b"`, `x.md:14 true "make it"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
