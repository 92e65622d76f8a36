package critest

// Dialect is a family of runtimes that answer alike.
type Dialect uint8

// The dialects, with the release each one is modelled on.
const (
	Containerd16 Dialect = iota // containerd 1.6.20
	Containerd2                 // containerd 2.4.2
	CRIO                        // CRI-O 1.37, drop_infra_ctr, cgroupfs
)

// Dialects are all of them, for tests that hold for each.
func Dialects() []Dialect { return []Dialect{Containerd16, Containerd2, CRIO} }

// String names the dialect for a subtest.
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

// traits are where the dialects differ.
type traits struct {
	name, version string
	crio          bool
	maxMessage    int // the server's cap on a message

	missingIsNotFound  bool // stopping what is not there is an error
	statusSandboxImage bool // Status names the sandbox image
	runtimeConfig      bool // RuntimeConfig is offered
	imageID            bool // containers carry image_id and the name the user gave
	pinned             bool // the sandbox image is pinned
	events             eventsMode
}

// eventsMode is what GetContainerEvents does.
type eventsMode uint8

const (
	eventsUnimplemented eventsMode = iota
	eventsBroadcast                // to every subscriber, old ones first
	eventsEnd                      // switched off: the stream ends at once
)

func (d Dialect) traits() traits {
	switch d {
	case Containerd2:
		return traits{
			name: "containerd", version: "2.4.2+unknown", maxMessage: 16 << 20,
			runtimeConfig: true, imageID: true, pinned: true, events: eventsBroadcast,
		}
	case CRIO:
		return traits{
			name: "cri-o", version: "1.37.0", crio: true, maxMessage: 80 << 20,
			statusSandboxImage: true, runtimeConfig: true, imageID: true, pinned: true, events: eventsEnd,
		}
	default:
		return traits{
			name: "containerd", version: "1.6.20~ds1", maxMessage: 16 << 20,
			missingIsNotFound: true, statusSandboxImage: true, events: eventsUnimplemented,
		}
	}
}
