// Command manpage makes criguard.toml(5) of docs/configuration.md, so that there is one
// text to keep true. It is run by `make man`; a test holds the page in the tree to it.
//
// It knows the Markdown that the reference is written in, and no other: headings,
// paragraphs, lists, tables and code, with code, bold and links within a line. The page
// uses the macros of man(7).
package main
