package top

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Sequences that take over the terminal and release it: xterm's alternate screen, a hidden cursor,
// and no line wrapping, so that an unexpectedly wide character cannot shift lines. A terminal
// without an alternate screen is cleared on exit.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leave = "\x1b[0m\x1b[2J\x1b[H\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// errNoTerminal means that no terminal can show the live view.
var errNoTerminal = errors.New("no terminal for a live view")

// TTY is the terminal that the program was started on.
type TTY struct {
	in, out *os.File
	before  *term.State
	keys    chan key
	resized chan os.Signal
}

// CheckTTY returns errNoTerminal unless both files are terminals that support drawing.
func CheckTTY(in, out *os.File) error {
	switch name := os.Getenv("TERM"); {
	case !term.IsTerminal(int(in.Fd())):
		return fmt.Errorf("%w: standard input is not one", errNoTerminal)
	case !term.IsTerminal(int(out.Fd())):
		return fmt.Errorf("%w: standard output is not one", errNoTerminal)
	case name == "dumb" || name == "":
		return fmt.Errorf("%w: TERM=%q shows text line by line alone", errNoTerminal, name)
	}
	return nil
}

// OpenTTY takes over a terminal that CheckTTY has accepted.
func OpenTTY(in, out *os.File) (*TTY, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set terminal: %w", err)
	}
	t := &TTY{in: in, out: out, before: before, keys: make(chan key), resized: make(chan os.Signal, 1)}
	if _, err := out.WriteString(enter); err != nil {
		return nil, errors.Join(fmt.Errorf("set terminal: %w", err), term.Restore(int(in.Fd()), before))
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	go t.read()
	return t, nil
}

// read sends typed keys to the channel until the terminal is lost or the program ends.
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

// Size returns the terminal's size in columns and rows.
func (t *TTY) Size() (width, height int, err error) { return term.GetSize(int(t.out.Fd())) }

// readKeys returns the pressed keys. The channel is closed when the terminal is lost.
func (t *TTY) readKeys() <-chan key { return t.keys }

// Resized signals that the size has changed.
func (t *TTY) Resized() <-chan os.Signal { return t.resized }

// Close restores the terminal.
func (t *TTY) Close() error {
	signal.Stop(t.resized)
	_, err := t.out.WriteString(leave)
	if err := errors.Join(err, term.Restore(int(t.in.Fd()), t.before)); err != nil {
		return fmt.Errorf("restore terminal: %w", err)
	}
	return nil
}

// Colour reports whether the user wants colours (https://no-color.org).
func Colour() bool { return os.Getenv("NO_COLOR") == "" }
