package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// story prints what happens, with the time since the start.
type story struct {
	w     io.Writer
	start time.Time
}

func newStory(w io.Writer) *story { return &story{w, time.Now()} }

// title begins an act.
func (s *story) title(text string) {
	fmt.Fprintf(s.w, "\n== %s %s\n", text, strings.Repeat("=", max(0, 76-len(text))))
}

// say prints a line.
func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.w, "%9.3fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// detail prints a step that takes time.
func (s *story) detail(format string, args ...any) {
	s.say("  "+format, args...)
}

// quote prints the output of a program.
func (s *story) quote(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(s.w, "            | %s\n", strings.TrimRight(line, "\n"))
	}
}
