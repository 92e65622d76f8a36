package lab

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseMounts(t *testing.T) {
	const text = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:33 / /sys/fs/cgroup/memory rw,relatime shared:12 master:3 - cgroup cgroup rw,memory
36 31 0:34 /a\040b /mnt/with\040space\011tab rw - ext4 /dev/sda1 rw
a line that is none
37 31 0:35 / /short
`
	got, err := parseMounts(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []mount{
		{device: "0:28", root: "/", point: "/sys/fs/cgroup", fstype: "tmpfs", options: "rw,mode=755"},
		{device: "0:33", root: "/", point: "/sys/fs/cgroup/memory", fstype: "cgroup", options: "rw,memory"},
		{device: "0:34", root: "/a b", point: "/mnt/with space\ttab", fstype: "ext4", options: "rw"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("36 31 0:34 /a\\040b /mnt/x rw - ext4 /dev/sda1 rw")
	f.Add("36 31 0:34 / /mnt\\0 rw - cgroup \\777 rw,memory")
	f.Fuzz(func(t *testing.T, text string) {
		all, _ := parseMounts(strings.NewReader(text))
		if len(all) > strings.Count(text, "\n")+1 {
			t.Errorf("%d mounts from %q", len(all), text)
		}
	})
}

func TestIsBelow(t *testing.T) {
	for _, test := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a/b", true},
		{"/a/b/c", "/a/b", true},
		{"/a/bc", "/a/b", false},
		{"/a", "/a/b", false},
		{"/a", "/", true},
	} {
		if got := isBelow(test.path, test.dir); got != test.want {
			t.Errorf("isBelow(%q, %q) = %v", test.path, test.dir, got)
		}
	}
}

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
			all, err := parseMounts(strings.NewReader(test.mounts))
			if err != nil {
				t.Fatal(err)
			}
			if got := hierarchiesOf(all); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}
