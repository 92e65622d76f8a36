package reclaim

import (
	"strings"

	"github.com/criguard/criguard/cri"
)

// names returns all names of an image.
func names(img cri.Image) []string {
	all := make([]string, 0, len(img.Tags)+len(img.Digests)+1)
	all = append(append(all, img.Tags...), img.Digests...)
	if img.UserImage != "" {
		all = append(all, img.UserImage)
	}
	return all
}

// displayName returns the name by which people know an image.
func displayName(img cri.Image) string {
	for _, name := range names(img) {
		return name
	}
	return cri.TrimID(img.ID)
}

// repository returns a name without tag and digest.
func repository(r cri.Reference) string { return r.Registry + "/" + r.Repository }

// isLocal reports whether a name refers to this node.
func isLocal(r cri.Reference) bool {
	host, _, _ := strings.Cut(r.Registry, ":")
	return host == "localhost" || strings.HasPrefix(host, "127.")
}

// isPause reports whether a name is typical of sandbox images.
func isPause(r cri.Reference) bool {
	name := r.Repository[strings.LastIndexByte(r.Repository, '/')+1:]
	return name == "pause" || strings.HasPrefix(name, "pause-") || strings.HasPrefix(name, "mirrored-pause")
}

// MatchesImage reports whether a pattern with * (any string) and ? (any one byte) matches the image's
// id or one of its names: as listed, in full, or without tag and digest.
func MatchesImage(pattern string, img cri.Image) bool {
	full := cri.CompleteName(pattern) // as a runtime completes a name that is pulled
	for _, name := range names(img) {
		r := cri.ParseReference(name)
		for _, form := range []string{name, r.String(), repository(r)} {
			if glob(pattern, form) || glob(full, form) {
				return true
			}
		}
	}
	return glob(pattern, img.ID) || glob(pattern, cri.TrimID(img.ID))
}

// glob matches all of s. It never backtracks beyond the last star.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
