// Package oci writes images as OCI image layouts in a tar archive
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md). The same input always
// gives the same bytes: the archive holds no time and no owner.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// Media types of the image specification. A layer is not compressed, so its digest is its diff ID.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// ContainerdName is the annotation that names an image for containerd, in full.
const ContainerdName = "io.containerd.image.name"

// Descriptor points to a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"` // bytes
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Path returns the path of the blob in the archive.
func (d Descriptor) Path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

// Platform is where an image runs, in the words of Go: GOARCH and GOOS. Variant is "v6" or "v7" for arm.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// Config describes an image.
type Config struct {
	Platform
	Created time.Time `json:"created,omitzero"`
	Process Process   `json:"config"`
}

// Process is what a container of the image runs.
type Process struct {
	Entrypoint []string          `json:"Entrypoint"`
	Cmd        []string          `json:"Cmd"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

// Archive is an archive that is being written.
type Archive struct {
	tar       *tar.Writer
	written   map[string]bool // blobs, by digest
	manifests []Descriptor
}

// NewArchive begins an archive.
func NewArchive(w io.Writer) *Archive {
	return &Archive{tar: tar.NewWriter(w), written: map[string]bool{}}
}

// Layer writes a layer, unless the archive has it. fill writes its files and runs twice: the digest is
// part of the blob's name, and names come first in a tar.
func (a *Archive) Layer(fill func(*tar.Writer) error) (Descriptor, error) {
	return a.blob(mediaLayer, func(w io.Writer) error {
		layer := tar.NewWriter(w)
		if err := fill(layer); err != nil {
			return err
		}
		return layer.Close()
	})
}

// Image writes the configuration and the manifest of an image. Name adds it to the index.
func (a *Archive) Image(c Config, layers ...Descriptor) (config, manifest Descriptor, err error) {
	type rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	root := rootFS{Type: "layers"}
	for _, l := range layers {
		root.DiffIDs = append(root.DiffIDs, l.Digest)
	}
	config, err = a.jsonBlob(mediaConfig, struct {
		Config
		RootFS rootFS `json:"rootfs"`
	}{c, root})
	if err != nil {
		return config, manifest, err
	}
	manifest, err = a.jsonBlob(mediaManifest, map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": layers,
	})
	return config, manifest, err
}

// Name adds a manifest to the index.
func (a *Archive) Name(manifest Descriptor, annotations map[string]string) {
	manifest.Annotations = annotations
	a.manifests = append(a.manifests, manifest)
}

// JSON writes a file.
func (a *Archive) JSON(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return WriteFile(a.tar, tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}, bytes.NewReader(text))
}

// Close writes the index and ends the archive.
func (a *Archive) Close() error {
	if err := a.JSON("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}
	if err := a.JSON("index.json", map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": a.manifests}); err != nil {
		return err
	}
	return a.tar.Close()
}

// blob writes the output of fill as a blob, once.
func (a *Archive) blob(mediaType string, fill func(io.Writer) error) (Descriptor, error) {
	hash, size := sha256.New(), counter(0)
	if err := fill(io.MultiWriter(hash, &size)); err != nil {
		return Descriptor{}, err
	}
	d := Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: int64(size)}
	if a.written[d.Digest] {
		return d, nil
	}
	a.written[d.Digest] = true
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: d.Path(), Mode: 0o644, Size: d.Size}); err != nil {
		return Descriptor{}, err
	}
	return d, fill(a.tar)
}

func (a *Archive) jsonBlob(mediaType string, value any) (Descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return Descriptor{}, err
	}
	return a.blob(mediaType, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WriteFile writes a regular file of h.Size bytes.
func WriteFile(w *tar.Writer, h tar.Header, content io.Reader) error {
	h.Typeflag = tar.TypeReg
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
