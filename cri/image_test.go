package cri

import "testing"

func TestRemovalRef(t *testing.T) {
	const config, manifest = "4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1", "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0"
	const name = "registry.local/app@sha256:" + manifest
	for what, tc := range map[string]struct {
		img  Image
		want string
	}{
		"containerd's image":        {Image{ID: "sha256:" + config, Digests: []string{name}}, "sha256:" + config},
		"CRI-O's image":             {Image{ID: config, Tags: []string{"registry.local/app:1"}, Digests: []string{name}}, config},
		"an image without a name":   {Image{ID: config}, config},
		"CRI-O's artifact":          {Image{ID: manifest, Tags: []string{"registry.local/app:1"}, Digests: []string{name}}, name},
		"one whose id has a prefix": {Image{ID: "sha256:" + manifest, Digests: []string{name}}, "sha256:" + manifest},
	} {
		if got := tc.img.RemovalRef(); got != tc.want {
			t.Errorf("%s: %s, want %s", what, got, tc.want)
		}
	}
}
