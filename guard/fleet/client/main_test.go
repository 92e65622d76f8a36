package client

import (
	"os"
	"testing"

	"github.com/criguard/criguard/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
