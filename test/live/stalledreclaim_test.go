package live_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// A stalled disk with the image ledger and the log directory on it does not delay a disk stop:
// criguard prunes images on another filesystem and stops the pod that fills it, and no other. Once
// the disk answers again, the ledger is in its file and the orphaned logs are removed.
func TestReclaimDiskStalls(t *testing.T) {
	n := newDisk(t, lab.Runtimes()[0])
	disk := n.disk()
	if _, err := n.lab.ImportImages(context.Background(), lab.ImageSpec{Name: "registry.local/prunable:1", ExtraBytes: imageSize, RepoDigest: true}); err != nil {
		n.Fatal(err)
	}
	writer := n.pod(lab.PodSpec{Name: "writer", Containers: one("fill", "-mib", "24")})
	logs := filepath.Join(disk.dir, "pods")
	orphan := filepath.Join(logs, "default_gone_uid", "main")
	for _, dir := range []string{orphan, filepath.Join(logs, "default_writer_"+writer.UID)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(orphan, "0.log"), []byte("x"), 0o600); err != nil {
		n.Fatal(err)
	}
	n.configure(config{
		hard:    thresholds{policy.ImageFSAvailable: diskLow},
		reclaim: thresholds{policy.ImageFSAvailable: "5%"},
		history: disk.dir, logs: logs,
		more: "[images]\nhigh = \"99%\"\nlow = \"98%\"\nmin_age = \"0s\"\nunused_grace = \"0s\"\nhold_after_runtime_restart = \"0s\"\n" +
			"[containers]\nmin_age = \"0s\"\n",
	})
	s := n.startWith(1)
	thaw := disk.freeze()
	prune := n.command(n.args("prune", "--containers")...)
	if err := prune.Start(); err != nil {
		n.Fatal(err)
	}
	filler := n.pod(lab.PodSpec{Name: "filler", Containers: one("fill", "-mib", "290")})
	n.within(3*patience, "the pod that fills the disk to be stopped", func() bool { return len(s.settled()) > 0 })
	s.stopped("default/filler")
	n.ended(filler)
	n.until("the threshold to be met no more", func() bool { return len(s.met()) == 0 })
	n.until("the ledger to be reported", func() bool {
		return strings.Contains(strings.Join(s.status().Warnings, "\n"), "image ledger not saved, kept in memory: the disk does not answer")
	})
	if missing := n.missing([]string{"registry.local/prunable:1"}); len(missing) != 1 {
		n.Error("the unused image was not pruned")
	}
	n.alive(writer)
	if _, err := os.Stat(orphan); err != nil {
		n.Errorf("the disk was not frozen: %v", err)
	}
	thaw()
	if err := prune.Wait(); err != nil {
		n.Logf("the prune that met the stalled disk: %v", err) // it fails if it has waited long enough
	}
	n.until("the orphaned logs to be gone", func() bool {
		_, err := os.Stat(filepath.Dir(orphan))
		return os.IsNotExist(err)
	})
	n.within(2*time.Minute, "the ledger to be in its file", func() bool {
		st, err := os.Stat(filepath.Join(disk.dir, "images.json"))
		return err == nil && st.Size() > 0 && len(s.status().Warnings) == 0
	})
}
