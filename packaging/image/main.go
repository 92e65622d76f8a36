package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/criguard/criguard/packaging/oci"
)

// repository is the name of the image on a node that imports the archive. It names no registry, so
// nothing pulls it.
const repository = "localhost/criguard"

func main() {
	dist := flag.String("dist", "dist", "`directory` that holds bin/ARCH/criguard and takes the archives")
	version := flag.String("version", "devel", "what git describe says")
	epoch := flag.Int64("epoch", -1, "time of everything in the images, in `seconds` of Unix time")
	flag.Parse()
	if err := writeAll(*dist, *version, *epoch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// writeAll writes an archive for each architecture and removes those of earlier runs.
func writeAll(dist, version string, epoch int64, arches []string) error {
	if epoch < 0 {
		return errors.New("image without a time: no -epoch (hint: outside of a git tree, set SOURCE_DATE_EPOCH)")
	}
	old, err := filepath.Glob(filepath.Join(dist, "criguard-*.tar"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	tag := tagOf(version)
	for _, arch := range arches {
		program, err := os.ReadFile(filepath.Join(dist, "bin", arch, "criguard"))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := write(&b, program, arch, tag, time.Unix(epoch, 0).UTC()); err != nil {
			return fmt.Errorf("make image for %s: %w", arch, err)
		}
		target := filepath.Join(dist, "criguard-"+tag+"-"+arch+".tar")
		if err := os.WriteFile(target, b.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Println(target)
	}
	return nil
}

// write writes the image of a program.
func write(w io.Writer, program []byte, arch, tag string, at time.Time) error {
	a := oci.NewArchive(w)
	layer, err := a.Layer(func(files *tar.Writer) error {
		return oci.WriteFile(files, tar.Header{Name: "criguard", Mode: 0o755, Size: int64(len(program)), ModTime: at}, bytes.NewReader(program))
	})
	if err != nil {
		return err
	}
	platform := platformOf(arch)
	_, manifest, err := a.Image(oci.Config{
		Platform: platform, Created: at,
		Process: oci.Process{
			Entrypoint: []string{"/criguard"}, Cmd: []string{"run"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "criguard",
				"org.opencontainers.image.version":  tag,
				"org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.source":   "https://github.com/criguard/criguard",
			},
		},
	}, layer)
	if err != nil {
		return err
	}
	manifest.Platform = &platform
	a.Name(manifest, map[string]string{oci.ContainerdName: repository + ":" + tag, "org.opencontainers.image.ref.name": tag})
	return a.Close()
}

// platformOf returns the platform of an architecture in the words of `make packages`: GOARCH, with GOARM
// as a suffix.
func platformOf(arch string) oci.Platform {
	if variant, arm := strings.CutPrefix(arch, "arm"); arm && strings.HasPrefix(variant, "v") {
		return oci.Platform{Architecture: "arm", OS: "linux", Variant: variant}
	}
	return oci.Platform{Architecture: arch, OS: "linux"}
}

var unfitInTag = regexp.MustCompile(`[^0-9A-Za-z_.-]+`)

// tagOf makes an image tag of a version
// (https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests).
func tagOf(version string) string {
	const most = 128
	tag := strings.TrimLeft(unfitInTag.ReplaceAllString(version, "-"), "-.")
	return tag[:min(len(tag), most)]
}
