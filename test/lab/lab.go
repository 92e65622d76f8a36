package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callTimeout limits a call to the runtime, or a wait that takes milliseconds on a quiet machine.
const callTimeout = 30 * time.Second

// Entries of a lab's directory and of its cgroup.
const (
	stateDir      = "state"
	nodeDir       = "node"  // the node's filesystem: the kubelet's root, logs and, unless separate, the images
	imageDir      = "image" // the image filesystem, if it is separate
	runtimeCgroup = "runtime"
	podsCgroup    = "kubepods"
)

// maxSocketPath is the longest path that a unix socket can be bound to (unix(7)).
const maxSocketPath = 107

// Options describe the node. The zero value is a node on the newest containerd, with its files on
// the machine's own filesystem.
type Options struct {
	Containerd string // Containerd1 or Containerd2 (the default)
	Dir        string // parent of the lab's directory; "" is /var/lib/criguard-lab

	// Size of the node filesystem in bytes, on a tmpfs; 0 uses the machine's own. The kernel
	// charges the tmpfs pages to the cgroup of the process that writes them. Inodes 0 leaves the
	// number to the kernel.
	NodeFSBytes, NodeFSInodes int64
	// The same for the image filesystem, which also holds the writable layers; 0 uses the node
	// filesystem.
	ImageFSBytes int64

	PodsMemoryLimit int64  // memory limit of the cgroup of all pods in bytes; 0 is unlimited
	Workload        string // the static program in the images; "" builds test/lab/workload

	Say func(format string, args ...any) // called for steps that take time; nil is silent
}

// Lab is a private containerd and its pods. It is safe for concurrent use.
type Lab struct {
	claim       *claim
	cgroups     cgroups
	programs    Programs
	workload    string
	snapshotter string
	version     string
	root        string // containerd's root directory
	systemd     bool   // pods' cgroups are slices, as with the kubelet's systemd driver

	endpoint, cgroup, pods string // returned by Endpoint, Cgroup and PodsCgroup
	kubelet, podLogs       string

	conn    *grpc.ClientConn
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient

	mu     sync.Mutex // guards daemon
	daemon *Daemon    // containerd

	closing sync.Once
	closed  error
}

// Start starts a lab. It needs root. It first cleans up labs whose owner died.
func Start(ctx context.Context, options Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("start lab: needs root, for mounts and cgroups")
	}
	if options.Say == nil {
		options.Say = func(string, ...any) {}
	}
	if options.Containerd == "" {
		options.Containerd = Containerd2
	}
	if err := Sweep(); err != nil {
		options.Say("cannot clean up after an earlier lab: %v", err)
	}
	if _, err := findCgroups(""); err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	programs, err := Install(ctx, options.Containerd, options.Say)
	if err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	claim, err := registry{home}.claim(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	l := &Lab{claim: claim, programs: programs, cgroup: claim.Cgroup, pods: filepath.Join(claim.Cgroup, podsCgroup)}
	l.endpoint = "unix://" + filepath.Join(claim.Dir, "containerd.sock")
	l.kubelet, l.podLogs = filepath.Join(claim.Dir, nodeDir, "kubelet"), filepath.Join(claim.Dir, nodeDir, "log/pods")
	if err := l.build(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start lab: %w", err), l.Close())
	}
	return l, nil
}

// build creates everything that the claim stands for.
func (l *Lab) build(ctx context.Context, options Options) error {
	var err error
	if l.cgroups, err = findCgroups(l.claim.Cgroup); err != nil {
		return err
	}
	if len(l.socket()) > maxSocketPath-len(".ttrpc") {
		return fmt.Errorf("make socket %s: path too long (hint: a shorter Options.Dir)", l.socket())
	}
	if err := l.makeDirs(options); err != nil {
		return err
	}
	if err := l.makeCgroups(options.PodsMemoryLimit); err != nil {
		return err
	}
	l.workload = options.Workload
	if l.workload == "" {
		l.workload = filepath.Join(l.claim.Dir, "workload")
		if err := BuildWorkload(ctx, l.workload); err != nil {
			return err
		}
	}
	if err := l.dial(); err != nil {
		return err
	}
	l.mu.Lock()
	err = l.startContainerd(ctx)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	answer, err := l.runtime.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return fmt.Errorf("ask for the runtime's version: %w", err)
	}
	l.version = answer.GetRuntimeVersion()
	_, err = l.ImportImages(ctx, ImageSpec{Name: PauseImage}, ImageSpec{Name: WorkloadImage})
	return err
}

// makeDirs creates the node's filesystems and containerd's config file.
func (l *Lab) makeDirs(options Options) error {
	dir := l.claim.Dir
	node, image := filepath.Join(dir, nodeDir), filepath.Join(dir, imageDir)
	if options.NodeFSBytes > 0 {
		if err := mountTmpfs(node, options.NodeFSBytes, options.NodeFSInodes); err != nil {
			return err
		}
	}
	l.root = filepath.Join(node, "containerd")
	if options.ImageFSBytes > 0 {
		if err := mountTmpfs(image, options.ImageFSBytes, 0); err != nil {
			return err
		}
		l.root = filepath.Join(image, "containerd")
	}
	for _, d := range []string{l.root, l.KubeletRoot(), l.PodLogDir(), filepath.Join(dir, stateDir), filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make lab directory: %w", err)
		}
	}
	l.snapshotter = "native"
	if overlayWorks(l.root) {
		l.snapshotter = "overlayfs"
	}
	c := config{root: l.root, state: filepath.Join(dir, stateDir), socket: l.socket(), scratch: dir, snapshotter: l.snapshotter}
	if err := os.WriteFile(filepath.Join(dir, "containerd.toml"), []byte(c.toml(l.programs.Major)), 0o600); err != nil {
		return fmt.Errorf("write containerd's config: %w", err)
	}
	return nil
}

// makeCgroups creates the cgroups of the runtime and of the pods.
func (l *Lab) makeCgroups(limit int64) error {
	if err := l.cgroups.make(runtimeCgroup); err != nil {
		return err
	}
	if err := l.cgroups.make(podsCgroup); err != nil {
		return err
	}
	if limit == 0 {
		return nil
	}
	return l.LimitPodsMemory(limit)
}

// dial prepares a connection that is established on demand and reconnects by itself.
func (l *Lab) dial() error {
	retry := backoff.Config{BaseDelay: pollInterval, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}
	conn, err := grpc.NewClient(l.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return fmt.Errorf("prepare connection to %s: %w", l.Endpoint(), err)
	}
	l.conn, l.runtime, l.images = conn, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	return nil
}

// Close removes the whole lab: pods, containerd, mounts, files and cgroups. It may be called more
// than once, in any state of the lab, and returns the same error each time. If it cannot remove
// everything, the lab stays registered, so that Sweep tries again.
func (l *Lab) Close() error {
	l.closing.Do(func() {
		if l.conn != nil {
			_ = l.conn.Close()
		}
		if l.claim == nil {
			return // the runtime and its pods belong to the node
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		err := l.daemon.End(unix.SIGKILL)
		if err == nil {
			err = teardown(l.claim.record)
		}
		if err != nil {
			l.closed = fmt.Errorf("close lab: %w", err)
			return
		}
		l.closed = l.claim.release()
	})
	return l.closed
}

// Endpoint returns the CRI endpoint, "unix:///…".
func (l *Lab) Endpoint() string { return l.endpoint }

// Version returns the version that the runtime itself reports, such as "1.6.20~ds1".
func (l *Lab) Version() string { return l.version }

// Snapshotter returns "overlayfs", or "native" where overlays cannot be mounted.
func (l *Lab) Snapshotter() string { return l.snapshotter }

// Dir returns the lab's directory.
func (l *Lab) Dir() string { return l.claim.Dir }

// Cgroup returns the path of the lab's own cgroup, from the root of every hierarchy.
func (l *Lab) Cgroup() string { return l.cgroup }

// PodsCgroup returns the path of the cgroup that holds the pods of all QoS classes, from the root
// of every hierarchy.
func (l *Lab) PodsCgroup() string { return l.pods }

// MemoryCgroupDir returns the directory of the cgroup with this path in the hierarchy with the
// memory controller.
func (l *Lab) MemoryCgroupDir(path string) string { return filepath.Join(l.cgroups.main().dir, path) }

// LimitPodsMemory sets the memory limit in bytes of the cgroup of all pods.
func (l *Lab) LimitPodsMemory(limit int64) error { return l.cgroups.limitMemory(podsCgroup, limit) }

// ContainerdRoot returns containerd's root directory, which holds images and writable layers.
func (l *Lab) ContainerdRoot() string { return l.root }

// KubeletRoot returns the directory used as the kubelet's root, with pods/<uid> below.
func (l *Lab) KubeletRoot() string { return l.kubelet }

// PodLogDir returns the directory used as /var/log/pods.
func (l *Lab) PodLogDir() string { return l.podLogs }

// Config returns criguard's configuration for this node: the tables [runtime] and [node].
func (l *Lab) Config() string {
	return fmt.Sprintf("[runtime]\nendpoint = %q\n[node]\nroot_dir = %q\npod_log_dir = %q\npods_cgroup = %q\n",
		l.endpoint, l.kubelet, l.podLogs, l.pods)
}
