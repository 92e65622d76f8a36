package guard

import (
	"errors"
	"testing"

	"github.com/criguard/criguard/policy"
)

// By hand, too, nothing is measured against a filesystem that is not known, or has no size: of
// nothing, any share is available, and nothing would be removed without a word.
func TestPruneUntil(t *testing.T) {
	for name, c := range map[string]struct {
		image  func(k *keeping) string
		signal policy.Signal
		want   error
	}{
		"known":              {func(k *keeping) string { return k.node.podLogs }, policy.ImageFSAvailable, nil},
		"of the layers":      {func(k *keeping) string { return k.node.podLogs }, policy.ContainerFSAvailable, nil},
		"not known":          {func(*keeping) string { return "" }, policy.ImageFSAvailable, errNoPath},
		"layers not known":   {func(*keeping) string { return "" }, policy.ContainerFSInodesFree, errNoPath},
		"without size":       {func(*keeping) string { return "/proc" }, policy.ImageFSAvailable, errNoTotal},
		"counting no inodes": {func(*keeping) string { return "/proc" }, policy.ImageFSInodesFree, errNoTotal},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t)
			paths := k.node.kernel.disks.getPaths()
			paths.image, paths.container = c.image(k), ""
			k.node.kernel.disks.setPaths(paths)
			l := Look{node: k.node}
			reports, err := l.Prune(t.Context(), PruneOptions{Images: true, Signal: c.signal, Until: policy.Percent(100)})
			if err != nil || len(reports) != 1 || !errors.Is(reports[0].Err(), c.want) || c.want == nil && reports[0].Err() != nil {
				t.Fatalf("%+v, %v", reports, err)
			}
			if _, images := k.removed(); images > 0 != (c.want == nil) {
				t.Errorf("%d images removed", images)
			}
		})
	}
}

// A share is one of what the filesystem has now, of bytes or of inodes; and no other resource has
// a target.
func TestReclaimTargets(t *testing.T) {
	k := newKeeping(t)
	fs, err := space(k.node.podLogs)
	if err != nil {
		t.Fatal(err)
	}
	paths := fsPaths{node: k.node.podLogs}
	k.node.kernel.disks.setPaths(paths)
	room, err := k.node.until(policy.NodeFSAvailable, policy.Percent(50).Of)(t.Context())
	if err != nil || room.Bytes+room.LackBytes != policy.Percent(50).Of(fs.Total) || room.LackInodes != 0 {
		t.Errorf("bytes: %+v of %d, %v", room, fs.Total, err)
	}
	room, err = k.node.until(policy.NodeFSInodesFree, policy.Percent(50).Of)(t.Context())
	if fs.Inodes == 0 { // as on btrfs
		if !errors.Is(err, errNoTotal) {
			t.Errorf("no inodes: %+v, %v", room, err)
		}
	} else if err != nil || room.Inodes+room.LackInodes != policy.Percent(50).Of(fs.Inodes) || room.LackBytes != 0 {
		t.Errorf("inodes: %+v of %d, %v", room, fs.Inodes, err)
	}
	r := reclaimer{node: k.node}
	met := func(s policy.Signal) policy.Met { return policy.Met{Threshold: policy.Threshold{Signal: s}, Target: 7} }
	if r.target(met(policy.PIDAvailable)) != nil || r.target(met(policy.MemoryAvailable)) != nil {
		t.Error("memory and PIDs have a target")
	}
	if room, err := r.target(met(policy.NodeFSAvailable))(t.Context()); err != nil || room.Bytes+room.LackBytes != 7 {
		t.Errorf("under pressure: %+v, %v", room, err)
	}
	// Neither the working directory's filesystem nor any other stands in for one that is not known.
	if _, err := r.target(met(policy.ImageFSAvailable))(t.Context()); !errors.Is(err, errNoPath) {
		t.Errorf("under pressure, not known: %v", err)
	}
	if _, err := k.watermark(k.config().Images)(t.Context()); !errors.Is(err, errNoPath) {
		t.Errorf("the watermark, not known: %v", err)
	}
}
