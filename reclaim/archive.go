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

// Bounds of reading one file.
const (
	maxIndex       = 16 << 20 // bytes of an index, and of a list
	maxUnpacked    = 64 << 30 // bytes of a tarball, unpacked
	maxWindow      = 64 << 20 // bytes that zstd may look back, and memory it takes; k3s and RKE2 pack with 32 MiB
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

// readList reads a list of image names, one a line, with # for comments.
func readList(r io.Reader) ([]string, error) {
	raw, err := readAll(r, maxIndex)
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

// readArchive finds the image names in a tarball, compressed or not: what
// `docker save` calls manifest.json (RepoTags) and an OCI layout index.json
// (annotations).
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
		raw, err := readAll(entries, maxIndex)
		if err != nil {
			return found, fmt.Errorf("read %s: %w", name, err)
		}
		more, err := parseIndex(name, raw)
		if err != nil {
			return found, fmt.Errorf("read %s: %w", name, err)
		}
		found = append(found, more...)
		if seen++; seen == 2 {
			return found, nil // the layers behind need not be unpacked
		}
	}
	return found, fmt.Errorf("read archive: %w", errTooLong)
}

// parseIndex takes the names out of one of both indexes.
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
		// The reference is often a bare tag, which names nothing.
		if ref := m.Annotations[annotationRef]; strings.ContainsAny(ref, "/:") {
			found = appendName(found, ref)
		}
		if m.Digest != "" {
			found = appendName(found, "any@"+m.Digest)
		}
	}
	return found, nil
}

// appendName adds what can be an image's name.
func appendName(found []string, name string) []string {
	if name == "" || len(name) > maxNameLength || len(found) >= maxNames ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return found
	}
	return append(found, name)
}

// unpacked undoes the compression, which the first bytes tell. What that takes is given back by
// done.
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
		// One at a time, in this goroutine: to find some names is in no haste.
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return failed(err)
		}
		return bounded(z), z.Close, nil
	case bytes.Equal(head, []byte{0x04, 0x22, 0x4d, 0x18}):
		return nil, nil, errCompression
	case canSeek:
		// The layers of a plain tarball are leapt over.
		if _, err := seeker.Seek(0, io.SeekStart); err != nil {
			return failed(err)
		}
		return r, done, nil
	}
	return bounded(buffered), done, nil
}

// readFunc makes a function a reader.
type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// readAll reads to the end, which must come within limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = errTooLong
	}
	return raw, err
}
