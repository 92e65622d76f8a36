package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPageInTheTree(t *testing.T) {
	reference, err := os.Open("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	var b strings.Builder
	if err := convert(reference, &b); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../systemd/criguard.toml.5")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(got) {
		t.Error("systemd/criguard.toml.5 is not what docs/configuration.md makes: run `make man`")
	}
}

func TestPage(t *testing.T) {
	for _, c := range []struct{ markdown, want string }{
		{"# Title\n\nOne\ntwo.\n\nThree.", "One two.\n.PP\nThree.\n"},
		{"## `[images]`\ntext", ".SH [IMAGES]\ntext\n"},
		{"- **Bold** with `--code`,\n  on\n- next", ".IP \\(bu 4\n\\fBBold\\fR with \\fB\\-\\-code\\fR, on\n.IP \\(bu 4\nnext\n"},
		{"1. one\n2. two", ".IP 1. 4\none\n.IP 2. 4\ntwo\n"},
		{"see [the notes](notes.md).", "see the notes.\n"},
		{"```toml\n[a]\n.b = 'x\\y'\n```\nafter", ".RS 4\n.EX\n[a]\n\\&.b = \\(aqx\\ey\\(aq\n.EE\n.RE\n.PP\nafter\n"},
		{"| key | default | |\n|---|---|---|\n| `a` | `\"x\"` | what |\n\nafter", ".TP\n\\fBa\\fR = \\fB\"x\"\\fR\nwhat\n.PP\nafter\n"},
		{"| rule | key | |\n|---|---|---|\n| `[[a]]` | `b` | what |\n| `[[c]]` | | |", ".TP\n\\fB[[a]]\\fR \\fBb\\fR\nwhat\n.TP\n\\fB[[c]]\\fR\n"},
		{"| signal | available | default, hard |\n|---|---|---|\n| `s` | bytes | `\"5%\"` |\n| `t` | time | |", ".TP\n\\fBs\\fR\nbytes; default, hard: \\fB\"5%\"\\fR\n.TP\n\\fBt\\fR\ntime\n"},
		{"text\n| a | |\n|---|---|\n| `x` | y |\ntext", "text\n.TP\n\\fBx\\fR\ny\n.PP\ntext\n"},
		{".PP\n'x", "\\&.PP \\(aqx\n"},
	} {
		if got := page(c.markdown); got != head+c.want+foot {
			t.Errorf("%q:\n%s", c.markdown, strings.TrimSuffix(strings.TrimPrefix(got, head), foot))
		}
	}
}

// Each man page has the sections that a reader of man pages looks for.
func TestEveryPageHasItsSections(t *testing.T) {
	pages, err := filepath.Glob("../../systemd/criguard*.[1-8]")
	if err != nil || len(pages) != 2 {
		t.Fatalf("%q, %v", pages, err)
	}
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{"EXAMPLES", "FILES", "EXIT STATUS", "ENVIRONMENT"} {
			if _, body, _ := strings.Cut(string(text), "\n.SH "+section+"\n"); body == "" || strings.HasPrefix(body, ".SH ") {
				t.Errorf("%s has no section %s", name, section)
			}
		}
	}
}
