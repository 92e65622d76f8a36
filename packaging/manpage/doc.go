// Command manpage generates criguard.toml(5) from docs/configuration.md, so that there is only one
// text to maintain. `make man` runs it; a test compares the page in the tree with its output.
//
// It supports only the Markdown that the reference uses: headings, paragraphs, lists, tables and
// code blocks, with code, bold and links within a line. The page uses the macros of man(7).
package main
