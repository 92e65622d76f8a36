package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// Of processes that start at once, only one creates the directory, and none fails.
func TestCreateAtOnce(t *testing.T) {
	base := t.TempDir()
	for i := range 100 {
		d := Dir(filepath.Join(base, strconv.Itoa(i)))
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				<-start
				if err := d.create(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Dir(file).create(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file in its place: %v", err)
	}
}
