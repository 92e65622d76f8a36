package critest

// Dialect is a family of runtimes with the same behaviour.
type Dialect uint8

// The dialects, with the release that each is modelled on.
const (
	Containerd16 Dialect = iota // containerd 1.6.20
	Containerd2                 // containerd 2.4.2
	CRIO                        // CRI-O 1.37, drop_infra_ctr, cgroupfs
)

// Dialects returns all dialects, for tests that hold for each.
func Dialects() []Dialect { return []Dialect{Containerd16, Containerd2, CRIO} }

// String returns the dialect's name for a subtest.
func (d Dialect) String() string {
	switch d {
	case Containerd16:
		return "containerd-1.6"
	case Containerd2:
		return "containerd-2"
	case CRIO:
		return "cri-o"
	default:
		return "unknown"
	}
}

// traits are the differences between the dialects.
type traits struct {
	name, version string
	crio          bool
	maxMessage    int // the server's limit for a message, in bytes

	missingIsNotFound  bool // stopping a missing object is an error
	statusSandboxImage bool // Status reports the sandbox image
	snapshotters       bool // one image filesystem for each
	imageID            bool // containers have image_id and the name that the user gave
	pinned             bool // the sandbox image is pinned
	events             eventsMode
}

// eventsMode is the behaviour of GetContainerEvents.
type eventsMode uint8

const (
	eventsUnimplemented eventsMode = iota
	eventsBroadcast                // to every subscriber, old ones first
	eventsEnd                      // disabled: the stream ends at once
)

func (d Dialect) traits() traits {
	switch d {
	case Containerd2:
		return traits{
			name: "containerd", version: "2.4.2+unknown", maxMessage: 16 << 20,
			snapshotters: true, imageID: true, pinned: true, events: eventsBroadcast,
		}
	case CRIO:
		return traits{
			name: "cri-o", version: "1.37.0", crio: true, maxMessage: 80 << 20,
			statusSandboxImage: true, imageID: true, pinned: true, events: eventsEnd,
		}
	default:
		return traits{
			name: "containerd", version: "1.6.20~ds1", maxMessage: 16 << 20,
			missingIsNotFound: true, statusSandboxImage: true, events: eventsUnimplemented,
		}
	}
}
