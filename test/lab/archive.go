package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"

	"github.com/criguard/criguard/packaging/oci"
)

// ImageSpec describes an image to make. The same specification always makes the same image, byte
// for byte.
type ImageSpec struct {
	Name       string // name and tag, such as "registry.local/app:1"
	ExtraBytes int64  // incompressible bytes in a layer of its own; all images share the first layer, the program
	RepoDigest bool   // also named by digest, like an image pulled from a registry
	Pinned     bool   // pinned by label; containerd shows pins from 1.6.22, 1.7.3 and 2.0 on
}

// Image is an image as the runtime will list it.
type Image struct {
	Name       string
	ID         string // "sha256:…", the digest of its configuration
	RepoDigest string // "name@sha256:…", the manifest's digest; listed if ImageSpec says so
}

// WriteArchive writes images that run program, a static binary, as one tar archive. The archive is
// both an OCI image layout (https://github.com/opencontainers/image-spec/blob/main/image-layout.md)
// and a docker-archive, so ctr, skopeo and docker can all read it.
func WriteArchive(w io.Writer, program string, specs ...ImageSpec) ([]Image, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read workload: %w", err)
	}
	a := archive{Archive: oci.NewArchive(w)}
	shared, err := a.Layer(programLayer(binary))
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
	if err := a.JSON("manifest.json", a.docker); err != nil {
		return nil, err
	}
	return images, a.Close()
}

// archive is an image archive that is being written.
type archive struct {
	*oci.Archive
	docker []dockerImage
}

// dockerImage is an entry of a docker-archive's manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// image writes the blobs of one image on top of the shared layer and names it in both indices.
func (a *archive) image(spec ImageSpec, shared oci.Descriptor) (Image, error) {
	repository, _, tagged := cutTag(spec.Name)
	if !tagged {
		return Image{}, fmt.Errorf("name %q: no tag", spec.Name)
	}
	layers := []oci.Descriptor{shared}
	if spec.ExtraBytes > 0 {
		extra, err := a.Layer(extraLayer(spec))
		if err != nil {
			return Image{}, err
		}
		layers = append(layers, extra)
	}
	// The labels distinguish images that have the same layers.
	config, manifest, err := a.Image(oci.Config{
		Platform: oci.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Process:  oci.Process{Entrypoint: []string{"/workload"}, Cmd: []string{"pause"}, Labels: map[string]string{"name": spec.Name}},
	}, layers...)
	if err != nil {
		return Image{}, err
	}
	files := make([]string, len(layers))
	for i, layer := range layers {
		files[i] = layer.Path()
	}
	image := Image{Name: spec.Name, ID: config.Digest, RepoDigest: repository + "@" + manifest.Digest}
	a.docker = append(a.docker, dockerImage{Config: config.Path(), RepoTags: []string{spec.Name}, Layers: files})
	names := []string{spec.Name}
	if spec.RepoDigest {
		names = append(names, image.RepoDigest)
	}
	for _, name := range names {
		a.Name(manifest, map[string]string{oci.ContainerdName: name})
	}
	return image, nil
}

// programLayer holds the program, and the directories that programs expect.
func programLayer(binary []byte) func(*tar.Writer) error {
	return func(layer *tar.Writer) error {
		for _, dir := range []string{"data/", "dev/", "etc/", "proc/", "sys/", "tmp/"} {
			if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
				return err
			}
		}
		return oci.WriteFile(layer, tar.Header{Name: "workload", Mode: 0o755, Size: int64(len(binary))}, bytes.NewReader(binary))
	}
}

// extraLayer holds pseudorandom bytes that depend only on the image's name.
func extraLayer(spec ImageSpec) func(*tar.Writer) error {
	return func(layer *tar.Writer) error {
		random := rand.NewChaCha8(sha256.Sum256([]byte(spec.Name)))
		return oci.WriteFile(layer, tar.Header{Name: "extra", Mode: 0o644, Size: spec.ExtraBytes}, io.LimitReader(random, spec.ExtraBytes))
	}
}

// cutTag splits "host:5000/name:tag" into its name and tag.
func cutTag(name string) (repository, tag string, ok bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.ContainsRune(name[i:], '/') || strings.ContainsRune(name, '@') {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}
