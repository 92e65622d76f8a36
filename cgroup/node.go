package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Node reads the node's own counters. It keeps its descriptors open and shares one buffer between
// readings, so that they do not allocate. It must be used from a single goroutine.
type Node struct {
	layout Layout
	names  memoryNames
	buf    []byte

	// A file that this node does not have is nil.
	meminfo, zoneinfo       *file
	loadavg                 *file
	rootUsage               *file // v1
	pidMax, threadsMax      *file
	memoryStall, ioStall    *file
	podsRel                 string
	podsUsage, podsStat     *file
	podsLimit               *file
	podsPIDs, podsPIDsLimit *file
	rootPIDs, rootPIDsLimit *file // in a container, whose cgroup is the mounted root

	zones   int64 // last result and time of freeZones
	zonesAt time.Time
}

// zonesFor is the maximum age of a reading of zoneinfo while memory is plentiful.
const zonesFor = time.Second

// errNoPods is the reading while the path of the pods cgroup is unknown.
var errNoPods = fmt.Errorf("read pods cgroup: no path is known: %w", ErrGone)

// OpenNode opens the files that the node has. It only fails if meminfo is missing. If something else is
// missing (PSI, the memory controller, the pods cgroup, which may be ""), the method that reads it
// returns the error.
func OpenNode(l Layout, podsCgroup string) (*Node, error) {
	n := &Node{layout: l, names: l.memoryNames(), buf: make([]byte, firstBuffer)}
	proc := func(name string) *file { return openIf(filepath.Join(string(l.proc), name)) }
	meminfo, err := openFile(filepath.Join(string(l.proc), "meminfo"))
	if err != nil {
		return nil, fmt.Errorf("open node: %w", err)
	}
	n.meminfo = meminfo
	n.zoneinfo = proc("zoneinfo")
	n.loadavg, n.pidMax, n.threadsMax = proc("loadavg"), proc("sys/kernel/pid_max"), proc("sys/kernel/threads-max")
	n.memoryStall, n.ioStall = proc("pressure/memory"), proc("pressure/io")
	if l.Version != V2 {
		n.rootUsage = openIf(filepath.Join(l.Dir("memory", "/"), n.names.usage))
	}
	n.rootPIDs, n.rootPIDsLimit = openIf(l.Dir("pids", "/")+"/pids.current"), openIf(l.Dir("pids", "/")+"/pids.max")
	n.SetPods(podsCgroup)
	return n, nil
}

func openIf(path string) *file {
	f, err := openFile(path)
	if err != nil {
		return nil
	}
	return f
}

// SetPods sets the path of the pods cgroup, which appears late if the kubelet starts late. "" means
// unknown.
func (n *Node) SetPods(rel string) {
	if rel == n.podsRel {
		return
	}
	n.closePods()
	n.podsRel = rel
}

// Close closes every descriptor.
func (n *Node) Close() {
	for _, f := range []*file{
		n.meminfo, n.zoneinfo, n.loadavg, n.rootUsage, n.pidMax, n.threadsMax, n.memoryStall, n.ioStall, n.rootPIDs, n.rootPIDsLimit,
	} {
		f.close()
	}
	n.closePods()
}

// MemInfo reads /proc/meminfo. It returns an error if MemTotal or MemFree is missing.
func (n *Node) MemInfo() (MemInfo, error) {
	b, err := n.meminfo.readAgain(&n.buf)
	if err != nil {
		return MemInfo{}, err
	}
	m := parseMemInfo(b)
	if m.Total <= 0 || m.Free < 0 {
		return MemInfo{}, fmt.Errorf("read %s: no MemTotal or MemFree", n.meminfo.path)
	}
	return m, nil
}

// ReadMemInfo reads /proc/meminfo once, without a [Node].
func ReadMemInfo(l Layout) (MemInfo, error) {
	f, err := openFile(filepath.Join(string(l.proc), "meminfo"))
	if err != nil {
		return MemInfo{}, err
	}
	defer f.close()
	n := Node{meminfo: f}
	return n.MemInfo()
}

// Memory reads the memory of the root cgroup, without a limit; see [Memory] for what it counts. info
// must be a current reading of meminfo. zoneinfo is expensive to read. If more than enough bytes lie
// outside the working set, Memory may use a reading of it that is up to a second old. With enough = 0 it
// always reads it.
func (n *Node) Memory(info MemInfo, enough int64) (Memory, error) {
	if info.InactiveFile < 0 {
		return Memory{}, fmt.Errorf("read %s: no Inactive(file)", n.meminfo.path)
	}
	m := Memory{InactiveFile: info.InactiveFile, Limit: -1}
	use := func() { m.Usage = max(info.Total-info.Free-n.zones-info.Spare(), 0) }
	if use(); enough <= 0 || info.Total-m.WorkingSet() <= enough || time.Since(n.zonesAt) > zonesFor {
		n.zones, n.zonesAt = n.freeZones(info.Total), time.Now()
		use()
	}
	if n.layout.Version == V2 {
		return m, nil
	}
	if n.rootUsage == nil {
		return Memory{}, unsupported("read root memory cgroup", "the memory controller (cgroup_enable=memory)")
	}
	charged, err := n.rootUsage.readNumber(&n.buf)
	if err != nil {
		return Memory{}, err
	}
	m.Uncharged = max(m.Usage-charged, 0)
	return m, nil
}

// freeZones returns by how much the memory that programs can get exceeds MemFree, in bytes: the processors' page lists, less
// what the kernel keeps back. It is 0 if zoneinfo cannot be read, or describes more memory than meminfo: in a container of
// LXC, meminfo has the memory of the container.
func (n *Node) freeZones(total int64) int64 {
	if n.zoneinfo == nil {
		return 0
	}
	var z zones
	if err := n.zoneinfo.eachLine(n.buf, z.add); err != nil {
		return 0
	}
	page := int64(os.Getpagesize())
	if z.managed*page > total+total/16 {
		return 0
	}
	return (z.lists - z.kept) * page
}

// PodsMemory reads the memory of the pods cgroup and its limit. The cgroup may appear and disappear;
// while it does not exist, PodsMemory returns ErrGone. It returns ErrUnsupported if the cgroup's memory
// is without that of the pods, see [Layout.CountsBelow].
func (n *Node) PodsMemory() (Memory, error) {
	if n.podsRel == "" {
		return Memory{}, errNoPods
	}
	if !n.layout.CountsBelow(n.podsRel) {
		return Memory{}, unsupported("read memory of the pods cgroup", needsHierarchy)
	}
	if n.podsUsage != nil {
		m, err := n.readPods()
		if !errors.Is(err, ErrGone) {
			return m, err
		}
		n.closePods() // the descriptors belong to a removed cgroup
	}
	if err := n.openPods(); err != nil {
		return Memory{}, fmt.Errorf("open pods cgroup %s: %w", n.podsRel, gone(err))
	}
	return n.readPods()
}

func (n *Node) readPods() (Memory, error) {
	m, stat, err := readMemory(n.podsUsage, n.podsStat, &n.names, &n.buf)
	if err != nil {
		return Memory{}, err
	}
	slab := parseKey(stat, "slab_reclaimable") // before the buffer is used again; a v1 memory.stat does not have it
	b, err := n.podsLimit.read(&n.buf)
	if err != nil {
		return Memory{}, err
	}
	m.Limit = parseLimit(b)
	// As for the node: the kernel frees most dentries and inodes when the cgroup is at its limit.
	if m.Limit > 0 {
		m.Usage -= spare(slab, m.Limit)
	}
	return m, nil
}

func (n *Node) openPods() error {
	dir := n.layout.Dir("memory", n.podsRel)
	for _, f := range []struct {
		to   **file
		name string
	}{{&n.podsUsage, n.names.usage}, {&n.podsStat, "memory.stat"}, {&n.podsLimit, n.names.limit}} {
		opened, err := openFile(filepath.Join(dir, f.name))
		if err != nil {
			n.closePods()
			return err
		}
		*f.to = opened
	}
	return nil
}

func (n *Node) closePods() {
	for _, f := range []**file{&n.podsUsage, &n.podsStat, &n.podsLimit, &n.podsPIDs, &n.podsPIDsLimit} {
		(*f).close()
		*f = nil
	}
}

// Pids reads the number of tasks and its limit: for the whole node, the lower of pid_max and
// threads-max. If the pods cgroup has a smaller share of its own pids.max left, or the container that
// the node is in, Pids returns its numbers instead.
func (n *Node) Pids() (Pids, error) {
	if n.loadavg == nil || (n.pidMax == nil && n.threadsMax == nil) {
		return Pids{}, unsupported("count tasks", "/proc/loadavg and /proc/sys/kernel/pid_max")
	}
	b, err := n.loadavg.readAgain(&n.buf)
	if err != nil {
		return Pids{}, err
	}
	p := Pids{Current: parseTasks(b), Max: -1}
	if p.Current < 0 {
		return Pids{}, fmt.Errorf("read %s: no number of tasks", n.loadavg.path)
	}
	for _, f := range []*file{n.pidMax, n.threadsMax} {
		if f == nil {
			continue
		}
		if b, err = f.readAgain(&n.buf); err != nil {
			return Pids{}, err
		}
		if limit := parseNumber(b); limit > 0 && (p.Max < 0 || limit < p.Max) {
			p.Max = limit
		}
	}
	if p.Max < 0 {
		return Pids{}, fmt.Errorf("read %s: no limit of tasks", n.loadavg.path)
	}
	return p.tighter(n.pidsOf(n.rootPIDs, n.rootPIDsLimit)).tighter(n.podsPids()), nil
}

// podsPids reads the number of tasks in the pods cgroup. The result is only valid if Max is positive
// and Current is not negative; [Pids.tighter] ignores it otherwise.
func (n *Node) podsPids() Pids {
	if n.podsRel == "" {
		return Pids{}
	}
	if n.podsPIDs == nil || n.podsPIDsLimit == nil {
		dir := n.layout.Dir("pids", n.podsRel)
		n.podsPIDs.close()
		n.podsPIDsLimit.close()
		n.podsPIDs, n.podsPIDsLimit = openIf(dir+"/pids.current"), openIf(dir+"/pids.max")
		if n.podsPIDs == nil || n.podsPIDsLimit == nil {
			return Pids{}
		}
	}
	p := n.pidsOf(n.podsPIDs, n.podsPIDsLimit)
	p.OfPods = true
	return p
}

// pidsOf reads the number of tasks in a cgroup and its limit. The root of the machine has no such files.
func (n *Node) pidsOf(current, limit *file) (p Pids) {
	if current == nil || limit == nil {
		return Pids{}
	}
	b, err := limit.readAgain(&n.buf)
	if err != nil {
		return Pids{}
	}
	p.Max = parseLimit(b)
	if b, err = current.readAgain(&n.buf); err != nil {
		return Pids{}
	}
	p.Current = parseNumber(b)
	return p
}

// MemoryStall reads how long tasks have been stalled on memory. It returns ErrUnsupported if the kernel
// has no PSI (linux 4.20, CONFIG_PSI, and psi=1 on the command line if PSI is off by default).
func (n *Node) MemoryStall() (Stall, error) { return n.stall(n.memoryStall) }

// IOStall reads how long tasks have been stalled on I/O. Its errors are those of [Node.MemoryStall].
func (n *Node) IOStall() (Stall, error) { return n.stall(n.ioStall) }

func (n *Node) stall(f *file) (Stall, error) {
	if f == nil {
		return Stall{}, errNoPSI
	}
	b, err := f.readAgain(&n.buf)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return Stall{}, errNoPSI
	}
	if err != nil {
		return Stall{}, err
	}
	s := parseStall(b)
	if s.Full < 0 {
		return Stall{}, fmt.Errorf("read %s: no total of full stalls", f.path)
	}
	return s, nil
}

// errNoPSI is allocated once, because such a node returns it on every pass.
var errNoPSI = unsupported("read pressure stall information", "linux 4.20 with psi=1")
