package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRegistry(t *testing.T) {
	r := registry{filepath.Join(t.TempDir(), "registry")}
	never := func(rec record) error {
		t.Errorf("cleaned %+v", rec)
		return nil
	}
	if err := r.sweep(never); err != nil {
		t.Errorf("sweep without a registry: %v", err)
	}
	first, err := r.claim("")
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.claim("/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if first.Cgroup == second.Cgroup || !strings.HasPrefix(first.Cgroup, "/criguard-lab-") {
		t.Errorf("cgroups %s and %s", first.Cgroup, second.Cgroup)
	}
	if filepath.Dir(first.Dir) != r.dir || filepath.Dir(second.Dir) != "/elsewhere" {
		t.Errorf("directories %s and %s", first.Dir, second.Dir)
	}

	t.Run("a living owner is left alone", func(t *testing.T) {
		if err := r.sweep(never); err != nil {
			t.Error(err)
		}
	})
	t.Run("a dead owner is cleaned up after", func(t *testing.T) {
		if err := second.file.Close(); err != nil { // what its death would do
			t.Fatal(err)
		}
		stuck := errors.New("stuck")
		if err := r.sweep(func(record) error { return stuck }); !errors.Is(err, stuck) {
			t.Errorf("got %v", err)
		}
		var cleaned []record
		keep := func(rec record) error { cleaned = append(cleaned, rec); return nil }
		if err := errors.Join(r.sweep(keep), r.sweep(never)); err != nil {
			t.Error(err)
		}
		if len(cleaned) != 1 || cleaned[0] != second.record {
			t.Errorf("got %+v, want %+v", cleaned, second.record)
		}
	})
	t.Run("a torn record is forgotten", func(t *testing.T) {
		torn := filepath.Join(r.dir, "1-1.json")
		if err := os.WriteFile(torn, []byte(`{"dir":`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.sweep(never); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(torn); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
	})
	t.Run("the last lab takes the registry with it", func(t *testing.T) {
		if err := first.release(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(r.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
	})
}
