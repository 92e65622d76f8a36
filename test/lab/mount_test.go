package lab

import (
	"reflect"
	"strings"
	"testing"

	"github.com/criguard/criguard/cgroup/mountinfo"
)

func TestHierarchies(t *testing.T) {
	const (
		v1 = `33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
35 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 31 0:33 / /mnt/memory-again rw - cgroup cgroup rw,memory
37 31 0:36 /docker/x /mnt/part rw - cgroup cgroup rw,pids
40 31 0:38 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
`
		unified = "41 31 0:39 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		v2      = "41 31 0:39 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	inV1 := []hierarchy{
		{dir: "/sys/fs/cgroup/cpu"},
		{dir: "/sys/fs/cgroup/memory", memory: true},
		{dir: "/sys/fs/cgroup/systemd"},
	}
	for _, test := range []struct {
		name, mounts string
		want         []hierarchy
	}{
		{"v1", v1, inV1},
		{"hybrid", v1 + unified, append(inV1[:3:3], hierarchy{dir: "/sys/fs/cgroup/unified", v2: true})},
		{"v2", v2, []hierarchy{{dir: "/sys/fs/cgroup", v2: true, memory: true}}},
		{"none", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, err := mountinfo.Parse(strings.NewReader(test.mounts))
			if err != nil {
				t.Fatal(err)
			}
			if got := hierarchiesOf(all); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}
