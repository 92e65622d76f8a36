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
