package mountinfo

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const text = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:33 / /sys/fs/cgroup/memory rw,relatime shared:12 master:3 - cgroup cgroup rw,memory
36 31 0:34 /a\040b /mnt/with\040space\011tab rw - ext4 /dev/sda1 rw
a line that is none
37 31 0:35 / /short
`
	got, err := Parse(strings.NewReader(text))
	want := []Mount{
		{"0:28", "/", "/sys/fs/cgroup", "tmpfs", []string{"rw", "mode=755"}},
		{"0:33", "/", "/sys/fs/cgroup/memory", "cgroup", []string{"rw", "memory"}},
		{"0:34", "/a b", "/mnt/with space\ttab", "ext4", []string{"rw"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, odd := range []string{"", " - ", "1 2 3 4 5 - cgroup cgroup", "1 2 - cgroup cgroup rw", "1 2 3 / /x rw cgroup cgroup rw,memory"} {
		if got, err := Parse(strings.NewReader(odd)); got != nil || err != nil {
			t.Errorf("%q gave %+v, %v", odd, got, err)
		}
	}
	if _, err := Parse(strings.NewReader(strings.Repeat("x", 2<<20))); err == nil {
		t.Error("a line without an end was read")
	}
	for in, want := range map[string]string{
		`/a\040b`: "/a b", `/\134`: `/\`, `/a\0`: `/a\0`, `/a\999`: `/a\999`, `\011`: "\t", "/plain": "/plain", `\`: `\`, `\400x`: `\400x`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	if mounts, err := Read(); err != nil || len(mounts) == 0 || mounts[0].Point == "" {
		t.Errorf("got %+v, %v", mounts, err)
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("36 35 98:0 / \\")
	f.Add("36 31 0:34 / /mnt\\0 rw - cgroup \\777 rw,memory")
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := Parse(strings.NewReader(text))
		if len(mounts) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d mounts, %v", len(mounts), err)
		}
		for _, m := range mounts {
			if !strings.HasPrefix(m.Point, "/") {
				t.Fatalf("not a path: %q", m.Point)
			}
		}
	})
}
