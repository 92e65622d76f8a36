package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/safetext"
)

// onTerminal returns what show writes to a terminal with this many columns; 0 = it does not know how many, like a serial line.
func onTerminal(t *testing.T, columns uint16, show func(io.Writer)) string {
	t.Helper()
	t.Setenv("COLUMNS", "")
	t.Setenv("LC_ALL", "C.UTF-8")
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keyboard.Close() }()
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns}); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(keyboard) // ends with an error when the screen is closed
		read <- b
	}()
	show(safetext.NewWriter(screen))
	_ = screen.Close()
	return strings.ReplaceAll(string(<-read), "\r\n", "\n")
}

func passes(w io.Writer) {
	t := NewTable(w, "PASS", "TOOK", "WHAT", "WHY").Spare("TOOK")
	t.Row("17", "1.25ms", "stop shop/a-cart-with-a-long-name", "memory.available 90Mi < 100Mi, and it uses most")
	t.Row("", "", "宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽", "")
	t.Flush()
}

// On a terminal that is too narrow, the longest cells are cut, and a column that can be spared is left out before less
// than 20 columns of one remain. Wide characters count twice. Otherwise a table is whole.
func TestTableFits(t *testing.T) {
	blanks := regexp.MustCompile(`(?m) +$`)
	for columns, want := range map[uint16]string{
		120: `PASS  TOOK    WHAT                               WHY
17    1.25ms  stop shop/a-cart-with-a-long-name  memory.available 90Mi < 100Mi, and it uses most
              宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽
`,
		90: `PASS  TOOK    WHAT                               WHY
17    1.25ms  stop shop/a-cart-with-a-long-name  memory.available 90Mi < 100Mi, and it us…
              宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽
`,
		57: `PASS  TOOK    WHAT                  WHY
17    1.25ms  stop shop/a-cart-wi…  memory.available 90…
              宽宽宽宽宽宽宽宽宽…
`,
		55: `PASS  WHAT                     WHY
17    stop shop/a-cart-with-…  memory.available 90Mi …
      宽宽宽宽宽宽宽宽宽宽宽…
`,
		20: `PASS  WHAT    WHY
17    stop …  memor…
      宽宽…
`,
		1: "",
	} {
		out := onTerminal(t, columns, passes)
		if got := blanks.ReplaceAllString(out, ""); want != "" && got != want {
			t.Errorf("in %d columns:\n%swant\n%s", columns, got, want)
		}
		for line := range strings.Lines(out) {
			if n := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); n > max(int(columns), 7) {
				t.Errorf("in %d columns, a line takes %d: %s", columns, n, line)
			}
		}
	}
	var piped bytes.Buffer
	passes(&piped)
	wide := onTerminal(t, 20, func(w io.Writer) {
		var o Output
		cmd := &cobra.Command{Use: "test", RunE: func(cmd *cobra.Command, _ []string) error { return o.Print(cmd, nil, passes) }}
		o.OutputFlag(cmd)
		cmd.SetOut(w)
		cmd.SetArgs([]string{"-o", "wide"})
		if err := cmd.Execute(); err != nil {
			t.Error(err)
		}
	})
	for how, out := range map[string]string{"in a pipe": piped.String(), "with -o wide": wide, "with an unknown width": onTerminal(t, 0, passes)} {
		if !strings.Contains(out, "17    1.25ms  stop shop/a-cart-with-a-long-name  memory.available 90Mi < 100Mi, and it uses most\n") {
			t.Errorf("%s:\n%s", how, out)
		}
	}
}

// $COLUMNS sets the width of a terminal, but not that of a pipe. Without Unicode, the mark of a cut is ASCII.
func TestTableEnvironment(t *testing.T) {
	narrow := func(w io.Writer) {
		t.Setenv("COLUMNS", "57")
		t.Setenv("LC_ALL", "C")
		passes(w)
	}
	if out := onTerminal(t, 0, narrow); !strings.Contains(out, "stop shop/a-cart-wi~  memory.available 90~\n") {
		t.Errorf("on a terminal:\n%s", out)
	}
	var piped bytes.Buffer
	if narrow(&piped); !strings.Contains(piped.String(), "and it uses most\n") {
		t.Errorf("in a pipe:\n%s", piped.String())
	}
}
