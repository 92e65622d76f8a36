package reclaim

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

type entry struct{ name, content string }

// tarball creates a tar archive.
func tarball(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(t testing.TB, raw []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(raw)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// zstandard compresses like the k3s and RKE2 releases, with a window of 32 MiB.
func zstandard(t testing.TB, raw []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(32<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range [][]byte{raw[:len(raw)/2], raw[len(raw)/2:]} { // as in a stream, the size is unknown
		_, err := w.Write(half)
		if err := errors.Join(err, w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

const (
	dockerManifest = `[{"Config":"c.json","RepoTags":["docker.io/rancher/pause:3.6","rancher/app:v1"],"Layers":["l.tar"]},{"RepoTags":null}]`
	ociIndex       = `{"schemaVersion":2,"manifests":[
		{"digest":"sha256:aa","annotations":{"io.containerd.image.name":"docker.io/library/nginx:1","org.opencontainers.image.ref.name":"1"}},
		{"digest":"sha256:bb","annotations":{"org.opencontainers.image.ref.name":"quay.io/x/y:2"}},
		{"annotations":null}]}`
)

func TestReadArchive(t *testing.T) {
	t.Parallel()
	layer := entry{"blobs/layer", strings.Repeat("x", 100_000)}
	fromDocker := []string{"docker.io/rancher/pause:3.6", "rancher/app:v1"}
	fromOCI := []string{"docker.io/library/nginx:1", "any@sha256:aa", "quay.io/x/y:2", "any@sha256:bb"}
	docker := tarball(t, layer, entry{"manifest.json", dockerManifest})
	tests := []struct {
		name string
		raw  []byte
		want []string
		err  string
	}{
		{"docker save", docker, fromDocker, ""},
		{"compressed by gzip", gzipped(t, docker), fromDocker, ""},
		{"OCI layout", tarball(t, entry{"oci-layout", "{}"}, entry{"./index.json", ociIndex}, layer), fromOCI, ""},
		{"both", tarball(t, entry{"index.json", ociIndex}, layer, entry{"manifest.json", dockerManifest}), append(append([]string{}, fromOCI...), fromDocker...), ""},
		{"compressed by zstd", zstandard(t, docker), fromDocker, ""},
		{"by zstd, in two frames", append(zstandard(t, docker[:2000]), zstandard(t, docker[2000:])...), fromDocker, ""},
		{"by zstd, cut off", zstandard(t, docker)[:100], nil, "unexpected EOF"},
		{"by zstd, damaged", append(zstandard(t, docker)[:60], "damage"...), nil, "read archive"},
		{"by zstd, looking back further than is read", []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0}, nil, errCompression.Error()},
		{"lz4", []byte{0x04, 0x22, 0x4d, 0x18, 0, 0}, nil, errCompression.Error()},
		{"no image archive", tarball(t, layer, entry{"deep/manifest.json", dockerManifest}), nil, errNoIndex.Error()},
		{"nothing", nil, nil, errNoIndex.Error()},
		{"no tarball", []byte(strings.Repeat("hello", 1000)), nil, "invalid tar header"},
		{"cut off after the index", tarball(t, entry{"manifest.json", dockerManifest}, layer)[:5000], fromDocker, "unexpected EOF"},
		{"an index that is none", tarball(t, entry{"manifest.json", "{"}), nil, "manifest.json"},
		{"an index too long", tarball(t, entry{"index.json", strings.Repeat(" ", maxIndex+1)}), nil, errTooLong.Error()},
		{"names that are none", tarball(t, entry{"manifest.json", fmt.Sprintf(`[{"RepoTags":["", "a b", "a\u0000b", "ünï", %q, "ok:1"]}]`, strings.Repeat("n", 513))}), []string{"ok:1"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{bytes.NewReader(tt.raw), struct{ io.Reader }{bytes.NewReader(tt.raw)}} {
				got, err := readArchive(t.Context(), r)
				equal(t, "names", got, tt.want)
				if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
			}
		})
	}
	t.Run("bzip2", func(t *testing.T) {
		t.Parallel()
		f, err := os.Open("testdata/save.tar.bz2")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		got, err := readArchive(t.Context(), f)
		equal(t, "names", got, fromDocker)
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("given up on", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, raw := range map[string][]byte{"gzip": gzipped(t, docker), "zstd": zstandard(t, docker)} {
			if _, err := readArchive(ctx, bytes.NewReader(raw)); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func TestReadList(t *testing.T) {
	t.Parallel()
	got, err := readList(strings.NewReader("# images\r\ndocker.io/a/b:1\r\n\n  c/d:2  # why\nno name\n" + strings.Repeat("n", 513) + "\nlast"))
	equal(t, "names", got, []string{"docker.io/a/b:1", "c/d:2", "last"})
	if err != nil {
		t.Error(err)
	}
	if _, err := readList(strings.NewReader(strings.Repeat("\n", maxIndex+1))); !errors.Is(err, errTooLong) {
		t.Errorf("a list too long: %v", err)
	}
}

func TestAirGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name string, raw []byte) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, raw, 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	save := put("save.tar", tarball(t, entry{"manifest.json", dockerManifest}))
	put("sub/index.tar.gz", gzipped(t, tarball(t, entry{"index.json", `{"manifests":[{"annotations":{"io.containerd.image.name":"in.sub/x:1"}}]}`})))
	put("list.txt", []byte("listed/x:1\nlisted/x:1\n"))
	put("release.tar.zst", zstandard(t, tarball(t, entry{"manifest.json", `[{"RepoTags":["in.release/x:1"]}]`})))
	put("release.tar.lz4", []byte{0x04, 0x22, 0x4d, 0x18})
	put("readme.md", []byte("not/read:1"))
	put(".cache.json", []byte("{}"))
	put("1/2/3/4/deep.txt", []byte("too/deep:1"))
	elsewhere := filepath.Join(t.TempDir(), "real.txt")
	if err := errors.Join(
		os.WriteFile(elsewhere, []byte("linked/x:1\n"), 0o600),
		os.Symlink(elsewhere, filepath.Join(dir, "link.txt")),
		os.Symlink(filepath.Dir(elsewhere), filepath.Join(dir, "linkdir")),
		os.Symlink("nowhere", filepath.Join(dir, "broken.txt")),
		os.Mkdir(filepath.Join(dir, "dir.tar"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "images")
	if err := os.Symlink(dir, linked); err != nil {
		t.Fatal(err)
	}
	want := []string{"docker.io/rancher/pause:3.6", "in.release/x:1", "in.sub/x:1", "linked/x:1", "listed/x:1", "rancher/app:v1"}

	var a airGap
	got, err := a.names(t.Context(), []string{linked, filepath.Join(dir, "none")})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "names", got.found, want)
	if notes := got.notes; len(notes) != 2 || !strings.Contains(notes[0], "broken.txt") || !strings.Contains(notes[1], "release.tar.lz4: "+errCompression.Error()) {
		t.Errorf("notes: %q", got.notes)
	}

	t.Run("an unchanged file is not read again", func(t *testing.T) {
		info, err := os.Stat(save)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(save, make([]byte, info.Size()), 0o600), os.Chtimes(save, time.Time{}, info.ModTime())); err != nil {
			t.Fatal(err)
		}
		got, err := a.names(t.Context(), []string{linked})
		equal(t, "names", got.found, want)
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("a changed one is", func(t *testing.T) {
		put("list.txt", []byte("changed/x:1\n"))
		put("save.tar", tarball(t, entry{"manifest.json", `[{"RepoTags":["new/x:1"]}]`}))
		got, err := a.names(t.Context(), []string{linked})
		equal(t, "names", got.found, []string{"changed/x:1", "in.release/x:1", "in.sub/x:1", "linked/x:1", "new/x:1"})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("one that the disk fails for is read again", func(t *testing.T) {
		var a airGap
		dir := t.TempDir()
		failing, format := filepath.Join(dir, "failing.txt"), filepath.Join(dir, "format.tar")
		writeFile(t, format, "no tarball")
		if err := os.Symlink("/proc/self/mem", failing); err != nil { // a read at offset 0 fails
			t.Fatal(err)
		}
		got, err := a.names(t.Context(), []string{dir})
		if err != nil || len(got.notes) != 2 || !strings.Contains(got.notes[0], "input/output error") {
			t.Fatalf("notes %q, %v", got.notes, err)
		}
		if a.dir(dir).files[failing].size != -1 {
			t.Error("an error of the disk is kept for one of the file")
		}
		if a.dir(dir).files[format].size < 0 {
			t.Error("what is no tarball is read again and again")
		}
	})
	t.Run("one that cannot be read to its end keeps what was known of it", func(t *testing.T) {
		var a airGap
		dir := t.TempDir()
		file := filepath.Join(dir, "images.tar")
		good := tarball(t, entry{"layer", strings.Repeat("x", 1000)}, entry{"manifest.json", dockerManifest})
		names := func(notes int, want ...string) {
			t.Helper()
			got, err := a.names(t.Context(), []string{dir})
			if equal(t, "names", got.found, want); err != nil || len(got.notes) != notes {
				t.Errorf("notes %q, %v", got.notes, err)
			}
		}
		known := []string{"docker.io/rancher/pause:3.6", "rancher/app:v1"}
		writeFile(t, file, string(good))
		names(0, known...)
		writeFile(t, file, string(good[:1000])) // it is being replaced
		names(1, known...)
		if err := errors.Join(os.Remove(file), os.Symlink("/proc/self/mem", file)); err != nil {
			t.Fatal(err)
		}
		names(1, known...)
		names(1, known...)
		if n := len(a.dir(dir).files[file].names); n != len(known) {
			t.Errorf("%d names are kept", n)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, string(tarball(t, entry{"manifest.json", `[{"RepoTags":["new/x:1"]}]`})))
		names(0, "new/x:1")
	})
	t.Run("a directory that cannot be read holds all, or keeps what was known", func(t *testing.T) {
		var a airGap
		base := filepath.Join(t.TempDir(), "base")
		dir := filepath.Join(base, "images")
		writeFile(t, base, "not a directory")
		if got, err := a.names(t.Context(), []string{dir}); err != nil || got.hold == "" || len(got.notes) != 1 {
			t.Errorf("never read: %+v, %v", got, err)
		}
		if err := errors.Join(os.Remove(base), os.MkdirAll(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "list.txt"), "known/x:1\n")
		got, err := a.names(t.Context(), []string{dir})
		if equal(t, "names", got.found, []string{"known/x:1"}); err != nil || got.hold != "" {
			t.Errorf("%+v, %v", got, err)
		}
		list := filepath.Join(dir, "list.txt")
		if err := errors.Join(os.Rename(list, list+".away"), os.Symlink(list, list)); err != nil { // a loop cannot be looked at
			t.Fatal(err)
		}
		for range 2 {
			got, err = a.names(t.Context(), []string{dir})
			if equal(t, "names", got.found, []string{"known/x:1"}); err != nil || len(got.notes) != 1 {
				t.Errorf("a file: %+v, %v", got, err)
			}
		}
		if err := errors.Join(os.RemoveAll(base), os.WriteFile(base, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		got, err = a.names(t.Context(), []string{dir})
		if equal(t, "names", got.found, []string{"known/x:1"}); err != nil || got.hold != "" || len(got.notes) == 0 {
			t.Errorf("the directory: %+v, %v", got, err)
		}
	})
	t.Run("so does a link to a directory that is away, such as on a disk that is not mounted", func(t *testing.T) {
		var a airGap
		disk := filepath.Join(t.TempDir(), "disk")
		dir, list := filepath.Join(t.TempDir(), "images"), filepath.Join(disk, "list.txt")
		if err := errors.Join(os.Symlink(disk, dir), os.Mkdir(disk+".away", 0o755)); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(disk+".away", "list.txt"), "known/x:1\n")
		if got, err := a.names(t.Context(), []string{dir}); err != nil || got.hold == "" || len(got.notes) != 1 {
			t.Errorf("never read: %+v, %v", got, err)
		}
		if err := os.Rename(disk+".away", disk); err != nil {
			t.Fatal(err)
		}
		got, err := a.names(t.Context(), []string{dir})
		if equal(t, "names", got.found, []string{"known/x:1"}); err != nil || got.hold != "" || len(got.notes) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if err := errors.Join(os.Remove(list), os.Remove(disk), os.Symlink(disk, disk)); err != nil { // a loop, which cannot be followed
			t.Fatal(err)
		}
		for range 2 {
			got, err = a.names(t.Context(), []string{dir})
			if equal(t, "names", got.found, []string{"known/x:1"}); err != nil || got.hold != "" || len(got.notes) != 1 {
				t.Errorf("away again: %+v, %v", got, err)
			}
			if err := os.Remove(disk); err != nil && !errors.Is(err, os.ErrNotExist) { // then there is nothing behind the link
				t.Fatal(err)
			}
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := a.names(t.Context(), []string{dir}); err != nil || len(got.found)+len(got.notes) != 0 || got.hold != "" {
			t.Errorf("without the link: %+v, %v", got, err)
		}
	})
	t.Run("a link to a file that is away keeps what was known", func(t *testing.T) {
		var a airGap
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "real.txt")
		writeFile(t, file, "known/x:1\n")
		link := filepath.Join(dir, "link.txt")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		for round, act := range []func() error{
			func() error { return nil }, func() error { return os.Rename(file, file+".away") }, func() error { return os.Rename(file+".away", file) },
		} {
			if err := act(); err != nil {
				t.Fatal(err)
			}
			got, err := a.names(t.Context(), []string{dir})
			if equal(t, "names", got.found, []string{"known/x:1"}); err != nil || (len(got.notes) != 0) != (round == 1) {
				t.Errorf("round %d: %+v, %v", round, got, err)
			}
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		got, err := a.names(t.Context(), []string{dir})
		if equal(t, "names without the link", got.found, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("given up on: no half an answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var fresh airGap
		if got, err := fresh.names(ctx, []string{dir}); !errors.Is(err, context.Canceled) || got.found != nil {
			t.Errorf("got %q, %v", got.found, err)
		}
	})
	t.Run("more files than are read", func(t *testing.T) {
		many := t.TempDir()
		for n := range maxAirGapFiles + 1 {
			if err := os.WriteFile(fmt.Sprintf("%s/%04d.txt", many, n), []byte("x:1"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := new(airGap).names(t.Context(), []string{many})
		if err != nil || len(got.notes) != 1 || !strings.Contains(got.notes[0], "the rest is not read") {
			t.Errorf("notes %q, %v", got.notes, err)
		}
	})
}

func FuzzReadArchive(f *testing.F) {
	docker := tarball(f, entry{"layer", "x"}, entry{"manifest.json", dockerManifest})
	f.Add(docker)
	f.Add(gzipped(f, docker))
	f.Add(zstandard(f, docker))
	f.Add(append(zstandard(f, docker[:1000]), zstandard(f, docker[1000:])...))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0})
	f.Add(tarball(f, entry{"index.json", ociIndex}))
	f.Add(docker[:700])
	f.Add([]byte("BZh9"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		seekable, err1 := readArchive(t.Context(), bytes.NewReader(raw))
		streamed, err2 := readArchive(t.Context(), struct{ io.Reader }{bytes.NewReader(raw)})
		if (err1 == nil) != (err2 == nil) && len(seekable) != len(streamed) {
			t.Fatalf("by seeking: %q, %v; by reading: %q, %v", seekable, err1, streamed, err2)
		}
		for _, name := range seekable {
			if name == "" || strings.ContainsAny(name, " \n\x00") {
				t.Fatalf("no name: %q", name)
			}
		}
	})
}

func FuzzReadList(f *testing.F) {
	f.Add([]byte("a/b:1\n# c\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := readList(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range got {
			if name == "" || strings.ContainsAny(name, " #\n") {
				t.Fatalf("no name: %q", name)
			}
		}
	})
}
