package critest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests, which must leave no goroutine behind: func TestMain(m *testing.M) { os.Exit(critest.Main(m)) }.
// Those of gRPC end by themselves, on a busy machine after seconds.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	err := goleak.Find()
	for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leaked goroutines:", err)
		code = max(code, 1)
	}
	return code
}
