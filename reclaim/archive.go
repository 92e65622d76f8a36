package reclaim

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Limits for reading one file.
const (
	maxIndex       = 16 << 20 // bytes of an index or a list
	maxUnpacked    = 64 << 30 // bytes of an unpacked tarball
	maxWindow      = 64 << 20 // bytes of the zstd window, which zstd holds in memory; k3s and RKE2 pack with 32 MiB
	maxTarEntries  = 1 << 20
	maxNames       = 1 << 16
	maxNameLength  = 512
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

var (
	errCompression = errors.New("this compression cannot be read: list its images in a .txt file beside it")
	errTooLong     = errors.New("longer than what is read")
	errNoIndex     = errors.New("no image archive: it has neither manifest.json nor index.json")
)

// readList reads a list of image names, one per line, with # for comments.
func readList(r io.Reader) ([]string, error) {
	raw, err := readIndex(r)
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		line, _, _ = strings.Cut(line, "#")
		found = appendName(found, strings.TrimSpace(line))
	}
	return found, nil
}

// readArchive finds the image names in a tarball, compressed or not: in manifest.json (RepoTags), as
// written by `docker save`, and in index.json (annotations) of an OCI layout.
func readArchive(ctx context.Context, r io.Reader) ([]string, error) {
	r, done, err := unpacked(ctx, r)
	if err != nil {
		return nil, err
	}
	defer done()
	var found []string
	seen := 0
	entries := tar.NewReader(r)
	for range maxTarEntries {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if seen == 0 {
				return nil, errNoIndex
			}
			return found, nil
		}
		if errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return found, errCompression
		}
		if err != nil {
			return found, fmt.Errorf("read archive: %w", err)
		}
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || name != "manifest.json" && name != "index.json" {
			continue
		}
		raw, err := readIndex(entries)
		if err != nil {
			return found, fmt.Errorf("read %s: %w", name, err)
		}
		more, err := parseIndex(name, raw)
		if err != nil {
			return found, fmt.Errorf("read %s: %w", name, err)
		}
		found = append(found, more...)
		if seen++; seen == 2 {
			return found, nil // the layers after it need not be unpacked
		}
	}
	return found, fmt.Errorf("read archive: %w", errTooLong)
}

// parseIndex extracts the names from either index.
func parseIndex(name string, raw []byte) (found []string, err error) {
	if name == "manifest.json" {
		var images []struct{ RepoTags []string }
		if err := json.Unmarshal(raw, &images); err != nil {
			return nil, err
		}
		for _, img := range images {
			for _, tag := range img.RepoTags {
				found = appendName(found, tag)
			}
		}
		return found, nil
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, err
	}
	for _, m := range index.Manifests {
		found = appendName(found, m.Annotations[annotationName])
		// The reference is often a bare tag without a name.
		if ref := m.Annotations[annotationRef]; strings.ContainsAny(ref, "/:") {
			found = appendName(found, ref)
		}
		if m.Digest != "" {
			found = appendName(found, "any@"+m.Digest)
		}
	}
	return found, nil
}

// appendName adds a name if it could be that of an image.
func appendName(found []string, name string) []string {
	if name == "" || len(name) > maxNameLength || len(found) >= maxNames ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return found
	}
	return append(found, name)
}

// unpacked decompresses, by the format that the first bytes show. done releases the decompressor's
// resources.
func unpacked(ctx context.Context, r io.Reader) (plain io.Reader, done func(), err error) {
	done = func() {}
	seeker, canSeek := r.(io.Seeker)
	buffered := bufio.NewReader(readFunc(func(b []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(b)
	}))
	head, err := buffered.Peek(4)
	bounded := func(r io.Reader) io.Reader { return io.LimitReader(r, maxUnpacked) }
	failed := func(err error) (io.Reader, func(), error) { return nil, nil, fmt.Errorf("read archive: %w", err) }
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return failed(err)
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return failed(err)
		}
		return bounded(z), done, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return bounded(bzip2.NewReader(buffered)), done, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// One block at a time, in this goroutine: finding names is not urgent.
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return failed(err)
		}
		return bounded(z), z.Close, nil
	case bytes.Equal(head, []byte{0x04, 0x22, 0x4d, 0x18}):
		return nil, nil, errCompression
	case canSeek:
		// In a plain tarball, the reader can skip the layers.
		if _, err := seeker.Seek(0, io.SeekStart); err != nil {
			return failed(err)
		}
		return r, done, nil
	}
	return bounded(buffered), done, nil
}

// readFunc makes a function an io.Reader.
type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// readIndex reads an index or a list to the end, and fails if it is too long.
func readIndex(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxIndex+1))
	if err == nil && len(raw) > maxIndex {
		err = errTooLong
	}
	return raw, err
}
