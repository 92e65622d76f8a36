package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteArchive(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("a static binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	specs := []ImageSpec{
		{Name: "registry.local/app:1", Tags: []string{"registry.local/app:latest"}, ExtraBytes: 5000, RepoDigest: true},
		{Name: "registry.local:5000/other:1"},
	}
	var archive, again bytes.Buffer
	images, err := WriteArchive(&archive, program, specs...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteArchive(&again, program, specs...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("the same images are not the same bytes")
	}
	files := untar(t, archive.Bytes())

	t.Run("blobs are named by digest", func(t *testing.T) {
		for name, content := range files {
			if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
				if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != digest {
					t.Errorf("%s holds something else", name)
				}
			}
		}
	})
	t.Run("docker-archive", func(t *testing.T) {
		var list []dockerImage
		parse(t, files["manifest.json"], &list)
		if len(list) != 2 || len(list[0].RepoTags) != 2 || len(list[0].Layers) != 2 || len(list[1].Layers) != 1 {
			t.Fatalf("got %+v", list)
		}
		if list[0].Layers[0] != list[1].Layers[0] {
			t.Error("the program's layer is not shared")
		}
		if got := "sha256:" + filepath.Base(list[0].Config); got != images[0].ID {
			t.Errorf("image ID %s, config %s", images[0].ID, got)
		}
		layer := untar(t, files[list[0].Layers[0]])
		if string(layer["workload"]) != "a static binary" {
			t.Errorf("program: %q", layer["workload"])
		}
		extra := untar(t, files[list[0].Layers[1]])["extra"]
		if len(extra) != 5000 || bytes.Count(extra, []byte{0}) > 100 {
			t.Errorf("extra layer: %d bytes, %d of them zero", len(extra), bytes.Count(extra, []byte{0}))
		}
	})
	t.Run("OCI layout", func(t *testing.T) {
		var index struct{ Manifests []descriptor }
		parse(t, files["index.json"], &index)
		var names []string
		for _, m := range index.Manifests {
			names = append(names, m.Annotations["io.containerd.image.name"])
			if _, ok := files[m.path()]; !ok {
				t.Errorf("manifest %s is missing", m.Digest)
			}
		}
		want := []string{"registry.local/app:1", "registry.local/app:latest", images[0].RepoDigest, "registry.local:5000/other:1"}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("got %q, want %q", names, want)
		}
		if images[0].RepoDigest != "registry.local/app@"+index.Manifests[0].Digest {
			t.Errorf("digest %s of manifest %s", images[0].RepoDigest, index.Manifests[0].Digest)
		}
	})
	t.Run("a name needs a tag", func(t *testing.T) {
		for _, name := range []string{"", "registry.local/app", "registry.local:5000/app", "registry.local/app@sha256:00"} {
			if _, err := WriteArchive(io.Discard, program, ImageSpec{Name: name}); err == nil {
				t.Errorf("%q: no error", name)
			}
		}
	})
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := files[header.Name]; twice {
			t.Errorf("%s is there twice", header.Name)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func parse(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}
