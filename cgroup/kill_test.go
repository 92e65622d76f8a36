package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/leak"
	"github.com/criguard/criguard/test/need"
)

func hierarchies(t *testing.T, test func(t *testing.T, l Layout)) {
	t.Run("v1", func(t *testing.T) { test(t, realV1(t)) })
	t.Run("v2", func(t *testing.T) { test(t, realV2(t)) })
}

func TestKillEmptiesACgroupAndNoOther(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		parent := ownCgroup(t, l)
		victim, nested, other := parent+"/victim", parent+"/victim/container", parent+"/victim-2"
		for _, rel := range []string{victim, nested, other} {
			makeCgroup(t, l.dir(rel))
		}
		var victims []*child
		for range 3 {
			victims = append(victims, startIn(t, "sleep", l.dir(victim)), startIn(t, "sleep", l.dir(nested)))
		}
		bystanders := []*child{startIn(t, "sleep", l.dir(other)), startIn(t, "sleep", l.dir(parent)), startIn(t, "sleep")}
		if ok, err := l.Populated(victim); !ok || err != nil {
			t.Fatalf("populated: %t, %v", ok, err)
		}
		if pids, err := l.Procs(victim); len(pids) != len(victims) || !slices.IsSorted(pids) || err != nil {
			t.Errorf("processes %v, %v; want %d of them", pids, err, len(victims))
		}
		n, err := l.Kill(victim)
		if !isCount(l, n, len(victims)) || err != nil {
			t.Errorf("killed %d, %v; want %d", n, err, len(victims))
		}
		for _, c := range victims {
			c.killed(t)
		}
		await(t, "an empty cgroup", func() bool {
			populated, err := l.Populated(victim)
			return !populated && err == nil
		})
		for i, c := range bystanders {
			if !c.alive() {
				t.Errorf("bystander %d was killed, too", i)
			}
		}
		if ok, err := l.Populated(other); !ok || err != nil {
			t.Errorf("the other cgroup is populated: %t, %v", ok, err)
		}
		if n, err := l.Kill(victim); n != 0 || err != nil {
			t.Errorf("an empty cgroup: killed %d, %v", n, err)
		}
	})
}

// isCount reports whether Kill may return n for this number of processes: cgroup.kill (v2) ends some
// before they are counted.
func isCount(l Layout, n, processes int) bool {
	return n == processes || l.Version == V2 && n >= 1 && n <= processes
}

func TestKillAForker(t *testing.T) {
	for name, c := range map[string]func(t *testing.T) (Layout, func(Layout, string) (int, error)){
		"v1":             func(t *testing.T) (Layout, func(Layout, string) (int, error)) { return realV1(t), Layout.Kill },
		"v2":             func(t *testing.T) (Layout, func(Layout, string) (int, error)) { return realV2(t), Layout.Kill },
		"v2 before 5.14": func(t *testing.T) (Layout, func(Layout, string) (int, error)) { return realV2(t), killWithoutFile },
	} {
		t.Run(name, func(t *testing.T) {
			l, kill := c(t)
			rel := ownCgroup(t, l)
			dirs := []string{l.dir(rel)}
			if l.v1["pids"] != "" {
				pids := l.Dir("pids", rel)
				makeCgroup(t, pids)
				dirs = append(dirs, pids)
				// Protect the machine's PIDs if the test fails.
				if err := os.WriteFile(pids+"/pids.max", []byte("100"), 0); err != nil {
					t.Fatal(err)
				}
			}
			forker := startIn(t, "fork", dirs...)
			forker.run(t)
			forker.done(t)
			await(t, "forks", func() bool {
				pids, err := l.Procs(rel)
				return err == nil && len(pids) > 2
			})
			// One call ends all of them, or returns an error after it has stopped the forks, so that
			// the next call succeeds.
			total := 0
			await(t, "an end of the forks", func() bool {
				n, err := kill(l, rel)
				total += n
				if err != nil {
					t.Logf("killed %d: %v", n, err)
				}
				populated, err := l.Populated(rel)
				return err == nil && !populated
			})
			forker.killed(t)
			if total < 1 { // a child may have ended by itself
				t.Error("killed no process")
			}
			if pids, err := l.Procs(rel); len(pids) != 0 || err != nil {
				t.Errorf("left: %v, %v", pids, err)
			}
		})
	}
}

func killWithoutFile(l Layout, rel string) (int, error) {
	t, err := l.openTree(rel)
	if err != nil {
		return 0, err
	}
	defer t.close()
	v := victims{layout: l, rel: rel, sent: map[int]bool{}}
	defer func() { l.released.start(l, v.killed, mrelease) }()
	err = v.killEach(t)
	return len(v.killed), err
}

// If new processes appear faster than Kill can kill them, it stops the forks, and returns an error
// instead of running forever.
func TestKillGivesUpOnForks(t *testing.T) {
	dir := t.TempDir()
	// A PID that is always listed but never exists stands for processes that end and leave another one
	// behind.
	write(t, dir, map[string]string{
		"memory/cgroup.procs": "", "memory/a/cgroup.procs": strconv.Itoa(maxPID-1) + "\n",
		"pids/cgroup.procs": "", "pids/a/pids.max": "max\n",
	})
	l, err := Detect(Root(dir), Proc(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.Kill("/a"); n != 0 || err == nil || !strings.Contains(err.Error(), "fork") {
		t.Errorf("killed %d, %v", n, err)
	}
	if b, err := os.ReadFile(dir + "/pids/a/pids.max"); !strings.HasPrefix(string(b), "0") || err != nil {
		t.Errorf("pids.max is %q, %v; want 0", b, err)
	}
}

func TestKillManyProcesses(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		var victims []*child
		for range releasedVictims + 2 {
			victims = append(victims, startIn(t, "sleep", l.dir(rel)))
		}
		before := len(leak.OpenDescriptors())
		if n, err := l.Kill(rel); !isCount(l, n, len(victims)) || err != nil {
			t.Errorf("killed %d, %v; want %d", n, err, len(victims))
		}
		for _, c := range victims {
			c.killed(t)
		}
		// A goroutine releases the memory of big processes, as they are under the race detector.
		for begin := time.Now(); len(leak.OpenDescriptors()) > before; time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d descriptors are left open", len(leak.OpenDescriptors())-before)
			}
		}
	})
}

func TestProcsOfNestedCgroups(t *testing.T) {
	dir := t.TempDir()
	deep := "memory/a"
	files := map[string]string{"memory/cgroup.procs": "", "memory/a/cgroup.procs": "9\n"}
	for range nestingDepth {
		deep += "/b"
		files[deep+"/cgroup.procs"] = ""
	}
	files[deep+"/cgroup.procs"] = "7\n"
	write(t, dir, files)
	l, err := Detect(Root(dir), "/proc")
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := l.Procs("/a"); !slices.Equal(pids, []int{7, 9}) || err != nil {
		t.Errorf("got %v, %v", pids, err)
	}
}

// This test only runs Kill on a tree of plain files that lists no process but this test's own child. On
// a real hierarchy, a broken check would kill everything on the machine.
func TestKillRefuses(t *testing.T) {
	for version, kind := range map[string]string{"v1": "memory/", "v2": ""} {
		t.Run(version, func(t *testing.T) {
			bystander := startIn(t, "sleep")
			pid := strconv.Itoa(bystander.pid())
			dir := t.TempDir()
			files := map[string]string{
				"cgroup/" + kind + "cgroup.procs":   pid + "\n",
				"cgroup/" + kind + "b/cgroup.procs": pid + "\n",
				"proc/" + pid + "/cgroup":           "4:memory:/b\n0::/b\n",
				"proc/self/cgroup":                  "4:memory:/me/here\n0::/me/here\n",
			}
			for _, rel := range []string{"me", "me/here"} {
				files["cgroup/"+kind+rel+"/cgroup.procs"] = ""
			}
			if version == "v2" {
				files["cgroup/cgroup.controllers"] = "memory\n"
			}
			write(t, dir, files)
			l, err := Detect(Root(dir+"/cgroup"), Proc(dir+"/proc"))
			if err != nil {
				t.Fatal(err)
			}
			for _, rel := range []string{
				"", "/", ".", "..", "//", "/..", "/../..", "/a/..", "a/../b", "/b/../b", "../cgroup", "/./", "b\x00",
				"/me", "/me/here", // the calling process is there
			} {
				if n, err := l.Kill(rel); n != 0 || err == nil || errors.Is(err, ErrGone) {
					t.Errorf("Kill(%q) = %d, %v; want a refusal", rel, n, err)
				}
			}
			if _, err := l.Kill("/not-there"); !errors.Is(err, ErrGone) || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("not there: %v, want ErrGone", err)
			}
			if !bystander.alive() {
				t.Fatal("a bystander was killed")
			}
			// Kill works in this tree for a path that is allowed.
			if n, err := l.Kill("/b"); n != 1 || err != nil {
				t.Errorf("Kill(/b) = %d, %v; want the child", n, err)
			}
			bystander.killed(t)
		})
	}
}

func TestKillRefusesItsOwnCgroup(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		makeCgroup(t, l.dir(rel+"/below"))
		c := startIn(t, "sleep", l.dir(rel+"/below"))
		// This procfs shows that process as the calling one.
		proc := t.TempDir()
		text, err := os.ReadFile("/proc/" + strconv.Itoa(c.pid()) + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		write(t, proc, map[string]string{"self/cgroup": string(text)})
		l.proc = Proc(proc)
		for _, rel := range []string{rel, rel + "/below"} {
			if n, err := l.Kill(rel); n != 0 || err == nil {
				t.Errorf("Kill(%q) = %d, %v, with this process in it", rel, n, err)
			}
		}
		if !c.alive() {
			t.Error("killed")
		}
	})
}

// Kill does not hit a process that left the cgroup between two lists, nor a process elsewhere that got
// the PID of an ended one, neither through the pidfd nor by PID.
func TestKillHitsWhoIsListedTwice(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		for _, pid := range []int{1, os.Getpid()} {
			if !isProtected(pid) {
				t.Errorf("process %d is not spared", pid)
			}
		}
		tree, err := l.openTree(rel)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.close()
		for _, pidfds := range []bool{true, false} {
			v := victims{layout: l, rel: rel, sent: map[int]bool{}}
			round := func() {
				t.Helper()
				pids, err := tree.procs()
				if err != nil {
					t.Fatal(err)
				}
				if _, errs := v.round(pids); len(errs) != 0 {
					t.Error(errs)
				}
				for pid, fd := range v.opened {
					if !pidfds && fd >= 0 {
						_ = unix.Close(fd)
						v.opened[pid] = -1
					}
				}
			}
			stays, leaves, joins := startIn(t, "sleep", l.dir(rel)), startIn(t, "sleep", l.dir(rel)), startIn(t, "sleep")
			round()
			move(t, leaves, l.dir("/"))
			move(t, joins, l.dir(rel))
			round()
			stays.killed(t)
			if len(v.killed) != 1 || !leaves.alive() || !joins.alive() {
				t.Errorf("pidfds %t: signalled %d; who left lives %t, who was listed once %t", pidfds, len(v.killed), leaves.alive(), joins.alive())
			}
			round()
			joins.killed(t)
			if len(v.killed) != 2 || !leaves.alive() {
				t.Errorf("pidfds %t: signalled %d; who left lives %t", pidfds, len(v.killed), leaves.alive())
			}
			// The PID of an ended process is listed again, as if it had been reused.
			ended := startIn(t, "sleep")
			v.open(ended.pid(), pidfds)
			if err := unix.Kill(ended.pid(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			ended.killed(t)
			if _, errs := v.round([]int{ended.pid()}); len(errs) != 0 || len(v.killed) != 2 || v.sent[ended.pid()] {
				t.Errorf("pidfds %t: an ended process: signalled %d, %v; its PID is done with: %t", pidfds, len(v.killed), errs, v.sent[ended.pid()])
			}
			l.released.start(l, v.killed, mrelease)
		}
	})
}

func move(t *testing.T, c *child, dir string) {
	t.Helper()
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(c.pid())), 0); err != nil {
		t.Fatal(err)
	}
}

// If the first thread of a process has ended, the others run on. cgroup.kill does not reach such a
// process, and /proc shows it in no cgroup (v1).
func TestKillOfALeaderlessProcess(t *testing.T) {
	for name, kill := range map[string]func(Layout, string) (int, error){"Kill": Layout.Kill, "one by one": killWithoutFile} {
		t.Run(name, func(t *testing.T) {
			hierarchies(t, func(t *testing.T, l Layout) {
				rel := ownCgroup(t, l)
				c := startIn(t, "leaderless", l.dir(rel))
				c.run(t)
				await(t, "the end of the first thread", func() bool {
					b, err := os.ReadFile("/proc/" + strconv.Itoa(c.pid()) + "/stat")
					return err == nil && strings.Contains(string(b), ") Z ")
				})
				if n, err := kill(l, rel); n != 1 || err != nil {
					t.Errorf("killed %d, %v; want 1", n, err)
				}
				c.killed(t)
			})
		})
	}
}

// Kill works even if pidfds cannot be opened or used.
func TestKillWithoutPidfds(t *testing.T) {
	l := realV1(t)
	if !isolated(t) {
		return
	}
	for _, c := range []struct {
		call  uint32
		errno unix.Errno
	}{
		{unix.SYS_PIDFD_SEND_SIGNAL, unix.EPERM},
		{unix.SYS_PIDFD_OPEN, unix.ENOSYS},
		{unix.SYS_PIDFD_OPEN, unix.EPERM},
		{unix.SYS_PIDFD_OPEN, unix.EMFILE},
		{unix.SYS_PIDFD_OPEN, unix.ENFILE},
	} {
		rel := ownCgroup(t, l)
		victims := []*child{startIn(t, "sleep", l.dir(rel)), startIn(t, "sleep", l.dir(rel))}
		refuse(t, c.call, c.errno)
		if _, _, errno := unix.RawSyscall(uintptr(c.call), 0, 0, 0); errno != c.errno {
			t.Fatalf("system call %d: %v, want %v", c.call, errno, c.errno)
		}
		if n, err := l.Kill(rel); !isCount(l, n, len(victims)) || err != nil {
			t.Errorf("%v of system call %d: killed %d, %v; want %d", c.errno, c.call, n, err, len(victims))
		}
		for _, c := range victims {
			c.killed(t)
		}
	}
}

// refuse makes a system call fail with errno in every thread of this process from now on. If called
// again for the same call, the last errno applies.
func refuse(t *testing.T, call uint32, errno unix.Errno) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if err != 0 {
		t.Fatalf("seccomp: %v", err)
	}
}

// After a pod's cgroup was removed, another pod may get the same path.
func TestKillReachesOneIncarnationOnly(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		old, err := l.openTree(rel)
		if err != nil {
			t.Fatal(err)
		}
		defer old.close()
		if err := os.Remove(l.dir(rel)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
			t.Fatal(err)
		}
		c := startIn(t, "sleep", l.dir(rel))
		v := victims{layout: l, rel: rel, sent: map[int]bool{}}
		if _, err := old.killAtOnce(); !errors.Is(err, ErrGone) {
			t.Errorf("at once: %v, want ErrGone", err)
		}
		if err := v.killEach(old); !errors.Is(err, ErrGone) || len(v.killed) != 0 {
			t.Errorf("one by one: %d, %v; want ErrGone", len(v.killed), err)
		}
		if !c.alive() {
			t.Error("killed in another cgroup than was meant")
		}
	})
}

func TestKillThawsFirst(t *testing.T) {
	l := realV1(t)
	need.File(t, "/sys/fs/cgroup/freezer") // CONFIG_CGROUP_FREEZER
	rel := ownCgroup(t, l, "freezer")
	freezer := l.Dir("freezer", rel)
	c := startIn(t, "sleep", l.dir(rel), freezer)
	t.Cleanup(func() { _ = os.WriteFile(freezer+"/freezer.state", []byte("THAWED"), 0) })
	if err := os.WriteFile(freezer+"/freezer.state", []byte("FROZEN"), 0); err != nil {
		t.Fatal(err)
	}
	await(t, "a frozen cgroup", func() bool {
		b, err := os.ReadFile(freezer + "/freezer.state")
		return err == nil && string(b) == "FROZEN\n"
	})
	if n, err := l.Kill(rel); n != 1 || err != nil {
		t.Fatalf("killed %d, %v", n, err)
	}
	c.killed(t)
}

// A cgroup below the victim may be frozen by itself, beside one that is not.
func TestKillThawsDescendants(t *testing.T) {
	l := realV1(t)
	need.File(t, "/sys/fs/cgroup/freezer") // CONFIG_CGROUP_FREEZER
	rel := ownCgroup(t, l, "freezer")
	freezer := l.Dir("freezer", rel)
	var victims []*child
	for _, below := range []string{"", "/frozen", "/frozen/too", "/running"} {
		makeCgroup(t, freezer+below)
		victims = append(victims, startIn(t, "sleep", l.dir(rel), freezer+below))
	}
	for _, below := range []string{"/frozen/too", "/frozen"} {
		state := freezer + below + "/freezer.state"
		t.Cleanup(func() { _ = os.WriteFile(state, []byte("THAWED"), 0) })
		if err := os.WriteFile(state, []byte("FROZEN"), 0); err != nil {
			t.Fatal(err)
		}
		await(t, "a frozen cgroup", func() bool {
			b, err := os.ReadFile(state)
			return err == nil && string(b) == "FROZEN\n"
		})
	}
	if n, err := l.Kill(rel); n != len(victims) || err != nil {
		t.Fatalf("killed %d, %v", n, err)
	}
	for _, c := range victims {
		c.killed(t)
	}
}

func TestKillReleasesBigVictims(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		c := startIn(t, "allocate:"+strconv.Itoa(2*bigVictim), l.dir(rel))
		c.run(t)
		c.done(t)
		if got := l.resident(c.pid()); got < 2*bigVictim {
			t.Errorf("resident %d bytes, want %d", got, 2*bigVictim)
		}
		if n, err := l.Kill(rel); n != 1 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		c.killed(t)
		if got := l.resident(c.pid()); got != 0 {
			t.Errorf("resident %d bytes after its end", got)
		}
	})
}

// This test uses a v2 hierarchy of plain files, because a real one does not show what was written.
func TestKillOfACapturedTree(t *testing.T) {
	listed := startIn(t, "sleep")
	pid := strconv.Itoa(listed.pid())
	tree := func(t *testing.T, files map[string]string) (Layout, string) {
		t.Helper()
		dir := t.TempDir()
		files["cgroup.controllers"] = "memory\n"
		write(t, filepath.Join(dir, "cgroup"), files)
		write(t, filepath.Join(dir, "proc"), map[string]string{"self/cgroup": "0::/me\n"})
		l, err := Detect(Root(filepath.Join(dir, "cgroup")), Proc(filepath.Join(dir, "proc")))
		if err != nil {
			t.Fatal(err)
		}
		return l, l.root
	}
	t.Run("cgroup.kill", func(t *testing.T) {
		l, root := tree(t, map[string]string{"a/cgroup.procs": pid + "\n", "a/cgroup.kill": "", "a/b/cgroup.procs": "0\n"})
		if n, err := l.Kill("/a"); n != 1 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		if b, err := os.ReadFile(root + "/a/cgroup.kill"); string(b) != "1" || err != nil {
			t.Errorf("wrote %q, %v", b, err)
		}
		listed.killed(t) // it is still listed
	})
	t.Run("not written", func(t *testing.T) {
		l, root := tree(t, map[string]string{"a/cgroup.procs": ""})
		if err := os.Mkdir(root+"/a/cgroup.kill", 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Kill("/a"); err == nil || !strings.Contains(err.Error(), `kill cgroup "/a"`) {
			t.Errorf("got %v", err)
		}
		other := startIn(t, "sleep")
		write(t, root, map[string]string{"a/cgroup.procs": strconv.Itoa(other.pid()) + "\n"})
		if n, err := l.Kill("/a"); n != 1 || err == nil {
			t.Errorf("killed %d, %v; want the listed process, and an error", n, err)
		}
		other.killed(t)
	})
}

func TestPopulated(t *testing.T) {
	v2 := testTree(t, "6.1-v2-systemd")
	for rel, want := range map[string]bool{"/kubepods.slice": true, "/kubepods.slice/kubepods-besteffort.slice": false} {
		if got, err := v2.Populated(rel); got != want || err != nil {
			t.Errorf("v2 %s: %t, %v; want %t", rel, got, err, want)
		}
	}
	v1 := testTree(t, "6.18-hybrid-cgroupfs")
	for rel, want := range map[string]bool{"/kubepods": true, "/kubepods/besteffort": false} {
		if got, err := v1.Populated(rel); got != want || err != nil {
			t.Errorf("v1 %s: %t, %v; want %t", rel, got, err, want)
		}
	}
	if pids, err := v1.Procs("/kubepods"); !slices.Equal(pids, []int{4321, 4400}) || err != nil {
		t.Errorf("processes %v, %v", pids, err)
	}
	for _, l := range []Layout{v1, v2} {
		if _, err := l.Populated("/gone"); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want ErrGone", l.Version, err)
		}
		if _, err := l.Procs("/gone"); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want ErrGone", l.Version, err)
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"cgroup.controllers": "", "a/cgroup.events": "frozen 0\n"})
	odd, err := Detect(Root(dir), "/proc")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := odd.Populated("/a"); err == nil {
		t.Errorf("cgroup.events without a word of it: %t", got)
	}
}

// Once a process has ended, no list shows it and its cgroup is empty, even before its parent reaps it.
func TestPopulatedWithoutZombies(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		null, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		// os/exec would reap the process.
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{Files: []*os.File{null, null, null}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.dir(rel)+"/cgroup.procs", []byte(strconv.Itoa(p.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		if n, err := l.Kill(rel); n != 1 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		await(t, "an empty cgroup", func() bool {
			populated, err := l.Populated(rel)
			return err == nil && !populated
		})
		if err := unix.Kill(p.Pid, 0); err != nil {
			t.Errorf("the process is no zombie: %v", err)
		}
		if n, err := l.Kill(rel); n != 0 || err != nil {
			t.Errorf("killed %d zombies, %v", n, err)
		}
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkKill(b *testing.B) {
	l := realV1(b)
	rel := ownCgroup(b, l)
	for b.Loop() {
		b.StopTimer()
		c := startIn(b, "sleep", l.dir(rel))
		b.StartTimer()
		if n, err := l.Kill(rel); n != 1 || err != nil {
			b.Fatal(n, err)
		}
		b.StopTimer()
		<-c.ended
		b.StartTimer()
	}
}
