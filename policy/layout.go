package policy

// Layout tells which of nodefs, imagefs and containerfs share a device.
type Layout uint8

// The layouts, as the kubelet knows them.
const (
	SingleFS         Layout = iota // one device for all three
	DedicatedImageFS               // images and writable layers on a device of their own
	SplitFS                        // images on a device of their own; writable layers on nodefs
)

var layoutNames = []string{"single", "dedicated-imagefs", "split"}

// ParseLayout finds a layout by the name String gives.
func ParseLayout(s string) (Layout, error) { return parseName[Layout](layoutNames, s, "layout") }

// String is "single", "dedicated-imagefs" or "split".
func (l Layout) String() string { return nameOf(layoutNames, l, "layout") }

// MarshalText gives the name.
func (l Layout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses the name.
func (l *Layout) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLayout(string(text))
	return err
}

// Shares reports whether two signals count the same: they are one, or about the same
// resource of the same device.
func (l Layout) Shares(a, b Signal) bool {
	return a == b || a.Resource() == b.Resource() && l.SameDevice(a, b)
}

// SameDevice reports whether two signals are about one device, its bytes or its inodes.
func (l Layout) SameDevice(a, b Signal) bool {
	return a.IsDisk() && b.IsDisk() && l.beside(a) == l.beside(b)
}

// beside tells whether a disk signal is about another device than that of nodefs.
func (l Layout) beside(s Signal) bool {
	image := s == ImageFSAvailable || s == ImageFSInodesFree
	container := s == ContainerFSAvailable || s == ContainerFSInodesFree
	return l == DedicatedImageFS && (image || container) || l == SplitFS && image
}
