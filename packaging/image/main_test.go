package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/packaging/oci"
)

var commit = time.Date(2026, 11, 21, 10, 49, 17, 0, time.UTC)

// filesIn returns the files of a tar by name.
func filesIn(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

func decode[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

// The archive is a complete OCI layout: every digest is that of its blob, and the image runs /criguard.
func TestWrite(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b, []byte("a program"), "armv7", "v1.2.3", commit); err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, &b)
	for name, text := range files {
		if digest, blob := strings.CutPrefix(name, "blobs/sha256/"); blob && fmt.Sprintf("%x", sha256.Sum256(text)) != digest {
			t.Errorf("%s holds other bytes", name)
		}
	}
	if got := string(files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Error(got)
	}
	blob := func(d oci.Descriptor) []byte {
		text, ok := files[d.Path()]
		if !ok || int64(len(text)) != d.Size {
			t.Fatalf("%+v: %d bytes", d, len(text))
		}
		return text
	}
	index := decode[struct{ Manifests []oci.Descriptor }](t, files["index.json"])
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations[oci.ContainerdName] != "localhost/criguard:v1.2.3" ||
		*index.Manifests[0].Platform != (oci.Platform{Architecture: "arm", OS: "linux", Variant: "v7"}) {
		t.Fatalf("%s", files["index.json"])
	}
	manifest := decode[struct {
		Config oci.Descriptor
		Layers []oci.Descriptor
	}](t, blob(index.Manifests[0]))
	if len(manifest.Layers) != 1 {
		t.Fatalf("%+v", manifest)
	}
	layer := filesIn(t, bytes.NewReader(blob(manifest.Layers[0])))
	if len(layer) != 1 || string(layer["criguard"]) != "a program" {
		t.Errorf("layer %q", layer)
	}
	config := decode[struct {
		oci.Config
		RootFS struct {
			Type string
			Diff []string `json:"diff_ids"`
		}
	}](t, blob(manifest.Config))
	if config.Architecture != "arm" || config.Variant != "v7" || !config.Created.Equal(commit) ||
		!slices.Equal(config.Process.Entrypoint, []string{"/criguard"}) || !slices.Equal(config.Process.Cmd, []string{"run"}) ||
		config.RootFS.Type != "layers" || !slices.Equal(config.RootFS.Diff, []string{manifest.Layers[0].Digest}) {
		t.Errorf("%s", blob(manifest.Config))
	}
}

// The same program gives the same bytes. Archives of an earlier run are removed.
func TestWriteAll(t *testing.T) {
	dist := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dist, "bin/amd64"), 0o755),
		os.WriteFile(filepath.Join(dist, "bin/amd64/criguard"), []byte("a program"), 0o755)); err != nil {
		t.Fatal(err)
	}
	var before []byte
	for _, version := range []string{"v1.2.2", "v1.2.3", "v1.2.3"} {
		if err := writeAll(dist, version, commit.Unix(), []string{"amd64"}); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dist, "*.tar"))
		if err != nil || !slices.Equal(found, []string{filepath.Join(dist, "criguard-"+version+"-amd64.tar")}) {
			t.Fatalf("%v, %v", found, err)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		if version == "v1.2.3" && before != nil && !bytes.Equal(text, before) {
			t.Error("the second build differs")
		}
		if before = nil; version == "v1.2.3" {
			before = text
		}
	}
	if err := writeAll(dist, "devel", -1, nil); err == nil || !strings.Contains(err.Error(), "set SOURCE_DATE_EPOCH") {
		t.Errorf("without a time: %v", err)
	}
	if err := writeAll(dist, "devel", 0, []string{"sparc"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a program: %v", err)
	}
}

func TestTagOf(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3-4-gabcdef-dirty": "v1.2.3-4-gabcdef-dirty", "my build+1": "my-build-1", "-.x": "x", strings.Repeat("x", 200): strings.Repeat("x", 128),
	} {
		if got := tagOf(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
