// Command skipcheck reads what `go test -json` writes and prints what `go test`
// would have printed. It fails where a test failed, where none ran, and, with
// -strict, where a test was skipped without an excuse: a skip says what it needs
// ("needs linux 6.1", "needs cgroup v2"), and this machine must lack just that.
//
//	go test -json ./... | go run ./test/skipcheck -strict
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	strict := flag.Bool("strict", os.Getenv("CI") != "", "fail on a skip without an excuse; set where CI is")
	flag.Parse()
	r, err := read(os.Stdin, os.Stdout)
	if err == nil {
		err = r.judge(os.Stdout, thisMachine(), *strict)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skipcheck:", err)
		os.Exit(1)
	}
}
