package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
)

// ImageSpec describes an image to make. The same specification makes the same image, byte for byte.
type ImageSpec struct {
	Name       string   // name and tag, such as "registry.local/app:1"
	Tags       []string // further names of the same image
	ExtraBytes int64    // incompressible bytes in a layer of the image's own; the first layer, the program, is shared by all images
	RepoDigest bool     // also named by digest, as an image that was pulled from a registry is
	Pinned     bool     // pinned by label; containerd shows pins from 1.6.22, 1.7.3 and 2.0 on
}

// Image is an image as the runtime will list it.
type Image struct {
	Name       string
	ID         string // "sha256:…", the digest of its configuration
	RepoDigest string // "name@sha256:…", the digest of its manifest; whether it is listed is the ImageSpec's choice
}

const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor is OCI's pointer to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// path is where a blob lies in an OCI layout.
func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

// WriteArchive writes images that run program, a static binary, as one tar archive which is an OCI image layout
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) and a docker-archive at once, so that ctr, skopeo and docker
// all read it.
func WriteArchive(w io.Writer, program string, specs ...ImageSpec) ([]Image, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read workload: %w", err)
	}
	a := archive{tar: tar.NewWriter(w), written: map[string]bool{}}
	shared, err := a.blob(mediaLayer, programLayer(binary))
	if err != nil {
		return nil, err
	}
	images := make([]Image, 0, len(specs))
	for _, spec := range specs {
		image, err := a.image(spec, shared)
		if err != nil {
			return nil, fmt.Errorf("write image %s: %w", spec.Name, err)
		}
		images = append(images, image)
	}
	index := map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": a.manifests}
	for _, file := range []struct {
		name  string
		value any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
		{"index.json", index},
		{"manifest.json", a.docker},
	} {
		if err := a.json(file.name, file.value); err != nil {
			return nil, err
		}
	}
	return images, a.tar.Close()
}

// archive is an image archive that is being written.
type archive struct {
	tar       *tar.Writer
	written   map[string]bool // blobs, by digest
	manifests []descriptor
	docker    []dockerImage
}

// dockerImage is an entry of a docker-archive's manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// image writes the blobs of one image on top of the shared layer and names it in both indices.
func (a *archive) image(spec ImageSpec, shared descriptor) (Image, error) {
	repository, _, tagged := cutTag(spec.Name)
	if !tagged {
		return Image{}, fmt.Errorf("name %q: no tag", spec.Name)
	}
	layers := []descriptor{shared}
	if spec.ExtraBytes > 0 {
		extra, err := a.blob(mediaLayer, extraLayer(spec))
		if err != nil {
			return Image{}, err
		}
		layers = append(layers, extra)
	}
	// The labels keep images apart that have the same layers.
	digests := make([]string, len(layers))
	files := make([]string, len(layers))
	for i, layer := range layers {
		digests[i], files[i] = layer.Digest, layer.path()
	}
	config, err := a.jsonBlob(mediaConfig, map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": []string{"/workload"},
			"Cmd":        []string{"pause"},
			"Labels":     map[string]string{"name": spec.Name},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": digests},
	})
	if err != nil {
		return Image{}, err
	}
	manifest, err := a.jsonBlob(mediaManifest, map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": layers,
	})
	if err != nil {
		return Image{}, err
	}
	tags := append([]string{spec.Name}, spec.Tags...)
	image := Image{Name: spec.Name, ID: config.Digest, RepoDigest: repository + "@" + manifest.Digest}
	a.docker = append(a.docker, dockerImage{Config: config.path(), RepoTags: tags, Layers: files})
	names := slices.Clone(tags)
	if spec.RepoDigest {
		names = append(names, image.RepoDigest)
	}
	for _, name := range names {
		named := manifest
		named.Annotations = map[string]string{"io.containerd.image.name": name}
		a.manifests = append(a.manifests, named)
	}
	return image, nil
}

// blob writes what fill writes as a blob, once. fill runs twice: the digest is part of the name, and names come first in a tar.
func (a *archive) blob(mediaType string, fill func(io.Writer) error) (descriptor, error) {
	hash, size := sha256.New(), counter(0)
	if err := fill(io.MultiWriter(hash, &size)); err != nil {
		return descriptor{}, err
	}
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: int64(size)}
	if a.written[d.Digest] {
		return d, nil
	}
	a.written[d.Digest] = true
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: d.path(), Mode: 0o644, Size: d.Size}); err != nil {
		return descriptor{}, err
	}
	return d, fill(a.tar)
}

func (a *archive) jsonBlob(mediaType string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return a.blob(mediaType, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (a *archive) json(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeFile(a.tar, name, 0o644, int64(len(text)), bytes.NewReader(text))
}

// programLayer holds the program, and the directories that programs expect.
func programLayer(binary []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		layer := tar.NewWriter(w)
		for _, dir := range []string{"data/", "dev/", "etc/", "proc/", "sys/", "tmp/"} {
			if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
				return err
			}
		}
		if err := writeFile(layer, "workload", 0o755, int64(len(binary)), bytes.NewReader(binary)); err != nil {
			return err
		}
		return layer.Close()
	}
}

// extraLayer holds random bytes, the same for the same name.
func extraLayer(spec ImageSpec) func(io.Writer) error {
	return func(w io.Writer) error {
		random := rand.NewChaCha8(sha256.Sum256([]byte(spec.Name)))
		layer := tar.NewWriter(w)
		if err := writeFile(layer, "extra", 0o644, spec.ExtraBytes, io.LimitReader(random, spec.ExtraBytes)); err != nil {
			return err
		}
		return layer.Close()
	}
}

func writeFile(w *tar.Writer, name string, mode, size int64, content io.Reader) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// cutTag splits "host:5000/name:tag" into its name and tag.
func cutTag(name string) (repository, tag string, ok bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.ContainsRune(name[i:], '/') || strings.ContainsRune(name, '@') {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
