package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := convert(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manpage:", err)
		os.Exit(1)
	}
}

func convert(from io.Reader, to io.Writer) error {
	markdown, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("read reference: %w", err)
	}
	if _, err := io.WriteString(to, page(string(markdown))); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
