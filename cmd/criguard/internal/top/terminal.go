package top

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// What is sent to take a terminal over and to give it back: xterm's alternate screen, no
// cursor, and no wrapping, so that a character that is wider than expected cannot push lines.
// A terminal without an alternate screen is left empty.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leave = "\x1b[0m\x1b[2J\x1b[H\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// ErrNoTerminal says that there is no terminal that a live view could be shown on.
var ErrNoTerminal = errors.New("no terminal for a live view")

// TTY is the terminal that the program was started on.
type TTY struct {
	in, out *os.File
	before  *term.State
	keys    chan Key
	resized chan os.Signal
}

// CheckTTY is ErrNoTerminal unless both files are a terminal that can be drawn on.
func CheckTTY(in, out *os.File) error {
	switch name := os.Getenv("TERM"); {
	case !term.IsTerminal(int(in.Fd())):
		return fmt.Errorf("%w: standard input is not one", ErrNoTerminal)
	case !term.IsTerminal(int(out.Fd())):
		return fmt.Errorf("%w: standard output is not one", ErrNoTerminal)
	case name == "dumb" || name == "":
		return fmt.Errorf("%w: TERM=%q shows text line by line alone", ErrNoTerminal, name)
	}
	return nil
}

// OpenTTY takes a terminal over that CheckTTY finds nothing wrong with.
func OpenTTY(in, out *os.File) (*TTY, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set terminal: %w", err)
	}
	t := &TTY{in: in, out: out, before: before, keys: make(chan Key), resized: make(chan os.Signal, 1)}
	if _, err := out.WriteString(enter); err != nil {
		return nil, errors.Join(fmt.Errorf("set terminal: %w", err), term.Restore(int(in.Fd()), before))
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	go t.read()
	return t, nil
}

// read passes on what is typed until the terminal goes away. It ends with the program.
func (t *TTY) read() {
	defer close(t.keys)
	var keys keyReader
	buf := make([]byte, 256)
	for {
		n, err := t.in.Read(buf)
		for _, k := range keys.read(buf[:n]) {
			t.keys <- k
		}
		if err != nil {
			return
		}
	}
}

// Write writes to the terminal.
func (t *TTY) Write(b []byte) (int, error) { return t.out.Write(b) }

// Size is the terminal's, in columns and rows.
func (t *TTY) Size() (width, height int, err error) { return term.GetSize(int(t.out.Fd())) }

// Keys are those that are pressed. The channel ends with the terminal.
func (t *TTY) Keys() <-chan Key { return t.keys }

// Resized tells that the size has changed.
func (t *TTY) Resized() <-chan os.Signal { return t.resized }

// Close gives the terminal back as it was.
func (t *TTY) Close() error {
	signal.Stop(t.resized)
	_, err := t.out.WriteString(leave)
	if err := errors.Join(err, term.Restore(int(t.in.Fd()), t.before)); err != nil {
		return fmt.Errorf("restore terminal: %w", err)
	}
	return nil
}

// Colour reports whether colours are wanted (https://no-color.org).
func Colour() bool { return os.Getenv("NO_COLOR") == "" }

// ASCII reports whether the locale is one without Unicode (locale(7)): a board's serial console
// often has none.
func ASCII() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return true
}
