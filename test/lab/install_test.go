package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestCacheDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	t.Setenv("CRIGUARD_LAB_CACHE", "")
	if got, err := CacheDir(); got != "/xdg/criguard-lab" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	t.Setenv("CRIGUARD_LAB_CACHE", "/own")
	if got, err := CacheDir(); got != "/own" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "thing")
	broken := errors.New("broken")
	err := once(dir, func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o600), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	runs := 0
	for range 2 {
		err := once(dir, func(dir string) error {
			runs++
			return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
		})
		if _, missing := os.Stat(filepath.Join(dir, "whole")); err != nil || missing != nil {
			t.Errorf("got %v, %v", err, missing)
		}
	}
	if runs != 1 {
		t.Errorf("filled %d times", runs)
	}
	if _, err := os.Stat(filepath.Join(dir, "half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a broken attempt left something: %v", err)
	}
}

func TestParseMajor(t *testing.T) {
	for text, want := range map[string]int{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3": 1,
		"containerd github.com/containerd/containerd/v2 2.4.2+unknown":                2,
		"containerd containerd.io v1.7.28 b98a3aace656320842a23f4a392a33f46af97866":   1,
	} {
		if got, err := parseMajor(text); got != want || err != nil {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "containerd", "containerd x main"} {
		if _, err := parseMajor(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestInstallUnknown(t *testing.T) {
	t.Setenv("CRIGUARD_LAB_CACHE", t.TempDir())
	if _, err := Install(t.Context(), "3", nil); err == nil {
		t.Error("no error")
	}
}
