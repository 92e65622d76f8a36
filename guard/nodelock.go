package guard

import (
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/node"
)

// lockNode locks what one criguard alone may enforce. It returns rundir.ErrRunning with the run directory of
// the criguard that has the lock. missed are the locks that LockNode could not take.
func lockNode(opt ServiceOptions) (unlock func(), missed []string, err error) {
	names, err := nodeLocks(opt.Config)
	if err != nil {
		return nil, nil, err
	}
	return opt.Machine.LockNode(opt.Dir, names...)
}

func nodeLocks(cfg config.Config) ([]string, error) {
	layout, _, err := detectCgroups(cfg.Node)
	if err != nil {
		return nil, err
	}
	return node.Locks(layout, cfg.Node.PodsCgroup, cfg.Runtime.Endpoint)
}
