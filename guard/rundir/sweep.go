package rundir

import (
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// SweepTemporary removes temporary files that a crash left in dir and that are at least older old. It removes
// only regular files with criguard's own temporary names.
func SweepTemporary(dir string, older time.Duration, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the directory does not exist, or the next write reports the error
	}
	temporary := regexp.MustCompile(`^\.(history\.jsonl|stop-[0-9]+\.json|budget\.json|orders\.json|fleet(-agent)?\.json|conditions\.json|thresholds\.json)-[0-9]+$`)
	for _, e := range entries {
		if !temporary.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) >= older {
			_ = os.Remove(filepath.Join(dir, e.Name())) // best effort: the file only takes space
		}
	}
}
