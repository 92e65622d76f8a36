package policy

// Pool is what runs out. Signals are views of a pool: two signals of one pool are relieved by the same
// stop. The numbers define the order of acting: memory before PIDs before disks.
type Pool uint8

// The pools. imagefs has its own pools only if it is on another device than nodefs, and containerfs only if it is on another
// device than both.
const (
	PoolMemory          Pool = iota // bytes; stalls and short swap are relieved by memory, too
	PoolPIDs                        // tasks
	PoolNodeBytes                   // bytes of the device of nodefs
	PoolNodeInodes                  // its inodes
	PoolImageBytes                  // bytes of the device of imagefs
	PoolImageInodes                 // its inodes
	PoolContainerBytes              // bytes of the device of containerfs
	PoolContainerInodes             // its inodes
	PoolCount                       // number of pools
)

var poolNames = []string{"memory", "pid", "nodefs bytes", "nodefs inodes", "imagefs bytes", "imagefs inodes", "containerfs bytes", "containerfs inodes"}

// poolResources are what the pools consist of, by pool.
var poolResources = [PoolCount]Resource{
	ResourceMemory, ResourcePIDs, ResourceDisk, ResourceInodes, ResourceDisk, ResourceInodes, ResourceDisk, ResourceInodes,
}

// String returns the pool's name.
func (p Pool) String() string { return nameOf(poolNames, p, "pool") }

// MarshalText returns the name.
func (p Pool) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the name.
func (p *Pool) UnmarshalText(text []byte) (err error) {
	*p, err = parseName[Pool](poolNames, string(text), "pool")
	return err
}

// Resource returns what the pool consists of.
func (p Pool) Resource() Resource { return poolResources[p] }

// Pool returns the pool of a signal.
func (l Layout) Pool(s Signal) Pool { return signals[min(s, SignalCount)].pools[l] }

// UseSignal returns the signal by which the use of the pool is counted, if s is one of its signals. Of memory, that includes what is
// in swap, whichever signal is due: otherwise readings for two of them could not be compared.
func (p Pool) UseSignal(s Signal) Signal {
	if p == PoolMemory {
		return SwapAvailable
	}
	return s
}

// IsDisk reports whether the pool is the bytes or inodes of a device.
func (p Pool) IsDisk() bool { return p >= PoolNodeBytes }

// Horizon is how many seconds pass until a stop has taken effect: what fills the pool until then has to
// come back as well.
func (p Pool) Horizon() int64 {
	if p.IsDisk() {
		return 10
	}
	return 1
}

// floor is the smallest yield that says anything about a pod: every container has mount points, an empty
// log and a few pages of memory.
func (p Pool) floor() int64 {
	switch p.Resource() {
	case ResourcePIDs:
		return 1
	case ResourceInodes:
		return 32
	default:
		return 1 << 20
	}
}

// Layout describes which of nodefs, imagefs and containerfs share a device.
type Layout uint8

// The layouts. The kubelet knows the first three.
const (
	SingleFS             Layout = iota // one device for all three
	DedicatedImageFS                   // images and writable layers on a separate device
	SplitFS                            // images on a separate device; writable layers on nodefs
	DedicatedContainerFS               // writable layers on a separate device; images on nodefs
	SeparateFS                         // three devices
	layoutCount
)

var layoutNames = []string{"single", "dedicated-imagefs", "split", "dedicated-containerfs", "separate"}

// ParseLayout returns the layout with the name that String returns.
func ParseLayout(s string) (Layout, error) { return parseName[Layout](layoutNames, s, "layout") }

// String returns the layout's name, such as "single" or "dedicated-imagefs".
func (l Layout) String() string { return nameOf(layoutNames, l, "layout") }

// SameDevice reports whether two signals cover the bytes or inodes of the same device.
func (l Layout) SameDevice(a, b Signal) bool {
	p, q := l.Pool(a), l.Pool(b)
	return p.IsDisk() && q.IsDisk() && (p-PoolNodeBytes)/2 == (q-PoolNodeBytes)/2
}
