// Command skipcheck reads what `go test -json` writes and prints what `go test`
// would have printed. It fails where a test failed, where none ran, and, with
// -strict, where a test was skipped without an excuse: a skip says what it needs
// ("needs linux 6.1", "needs cgroup v2"), and this machine must lack just that.
//
//	go test -json ./... | go run ./test/skipcheck -strict
package main
