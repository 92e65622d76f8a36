package critest

import (
	"context"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Server is a runtime for tests.
type Server struct {
	tb     testing.TB
	traits traits
	dir    string // contains the socket
	log    *callLog

	mu         sync.Mutex
	grpc       *grpc.Server // nil while stopped
	served     chan struct{}
	faults     []*fault
	pods       []*pod // in the order they were added
	images     []*image
	added      struct{ pods, containers, images, pids int }
	systemd    bool
	imageFS    string
	cniBroken  bool
	events     eventHub
	listen     func() (net.Listener, error) // at each start
	latency    func(Call) time.Duration
	sampling   time.Duration // 0 = what containers write is always known
	deleted    func(containerID string, bytes, inodes int64)
	containers map[string]*container
}

// Option changes a default of a server.
type Option func(*Server)

// WithSystemdCgroups places pods in systemd slices and scopes.
func WithSystemdCgroups() Option { return func(s *Server) { s.systemd = true } }

// WithEvents enables events on a dialect that disables them by default (CRI-O).
func WithEvents() Option { return func(s *Server) { s.traits.events = eventsBroadcast } }

// WithListener lets the server listen elsewhere than on its socket, after each Start.
func WithListener(listen func() (net.Listener, error)) Option {
	return func(s *Server) { s.listen = listen }
}

// WithLatency lets each unary call take at least so long.
func WithLatency(of func(Call) time.Duration) Option { return func(s *Server) { s.latency = of } }

// WithSampling lets a dialect of containerd sample what containers write only so often, as the real one does every ten seconds: a
// container that it has not sampled yet reports nothing.
func WithSampling(every time.Duration) Option { return func(s *Server) { s.sampling = every } }

// WithDeletions calls a function for the writable layer of each container that is removed. It must not call the server.
func WithDeletions(deleted func(containerID string, bytes, inodes int64)) Option {
	return func(s *Server) { s.deleted = deleted }
}

// New starts a server on a socket of its own, with only a pause image. It stops when the test ends.
func New(tb testing.TB, d Dialect, opts ...Option) *Server {
	tb.Helper()
	s := &Server{
		tb: tb, traits: d.traits(), dir: socketDir(tb), log: newCallLog(),
		containers: map[string]*container{},
	}
	s.listen = func() (net.Listener, error) { return net.Listen("unix", s.socket()) }
	for _, o := range opts {
		o(s)
	}
	s.imageFS = filepath.Join(s.dir, "images")
	if err := os.Mkdir(s.imageFS, 0o755); err != nil {
		tb.Fatalf("critest: %v", err)
	}
	s.AddImage(ImageSpec{Tags: []string{pauseImage}, Size: 300 << 10, Pinned: s.traits.pinned})
	s.Start()
	tb.Cleanup(s.Stop)
	return s
}

// ServeWithoutCRI starts a gRPC server without the CRI, like a containerd whose CRI plugin is disabled,
// and returns its endpoint.
func ServeWithoutCRI(tb testing.TB) string {
	tb.Helper()
	socket := filepath.Join(socketDir(tb), "cri.sock")
	srv := grpc.NewServer()
	served, err := serve(srv, func() (net.Listener, error) { return net.Listen("unix", socket) })
	if err != nil {
		tb.Fatalf("critest: %v", err)
	}
	tb.Cleanup(func() { srv.Stop(); <-served })
	return "unix://" + socket
}

// socketDir returns a directory whose path is short enough to hold a socket.
func socketDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "critest")
	if err != nil {
		tb.Fatalf("critest: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve serves until srv is stopped, then closes served.
func serve(srv *grpc.Server, listen func() (net.Listener, error)) (served chan struct{}, err error) {
	l, err := listen()
	if err != nil {
		return nil, err
	}
	served = make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // returns after Stop; the error does not matter
	}()
	return served, nil
}

// Endpoint returns the server's address as "unix:///path".
func (s *Server) Endpoint() string { return "unix://" + s.socket() }

func (s *Server) socket() string { return filepath.Join(s.dir, "cri.sock") }

// Start listens again after Stop. Pods and images are unchanged.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return
	}
	s.grpc = grpc.NewServer(
		grpc.MaxSendMsgSize(s.traits.maxMessage),
		grpc.MaxRecvMsgSize(s.traits.maxMessage),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true),
	)
	runtimeapi.RegisterRuntimeServiceServer(s.grpc, &runtimeService{s: s})
	runtimeapi.RegisterImageServiceServer(s.grpc, &imageService{s: s})
	var err error
	if s.served, err = serve(s.grpc, s.listen); err != nil {
		s.tb.Fatalf("critest: %v", err)
	}
}

// Stop stops the runtime like systemctl stop: calls in flight break off, the socket disappears, and the
// containers continue to run.
func (s *Server) Stop() {
	s.mu.Lock()
	srv, served := s.grpc, s.served
	s.grpc = nil
	s.mu.Unlock()
	if srv != nil {
		srv.Stop()
		<-served
	}
}

// unary records a call and applies its faults.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := s.log.begin(ctx, path.Base(info.FullMethod), req)
	if s.latency != nil {
		time.Sleep(s.latency(*c))
	}
	resp, err := s.suffer(ctx, c, func() (any, error) { return handler(ctx, req) })
	s.log.end(c)
	return resp, err
}

// stream does the same for the stream of events.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := s.log.begin(ss.Context(), path.Base(info.FullMethod), nil)
	var err error
	for _, f := range s.faultsFor(c) {
		if err = f.before(ss.Context(), s, c); err != nil {
			break
		}
	}
	if err == nil {
		err = handler(srv, ss)
	}
	s.log.end(c)
	return err
}

// AddPod adds a pod with its containers.
func (s *Server) AddPod(spec PodSpec) Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.added.pods++
	p := &pod{spec: spec.fill(s.added.pods, s.systemd, now), server: s, ready: !spec.NotReady, pause: !spec.NotReady}
	p.spec.Containers = nil
	s.pods = append(s.pods, p)
	if p.ready {
		p.pid = s.newPID()
		s.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, p.spec.ID, p)
	}
	out := Pod{
		ID: p.spec.ID, Name: p.spec.Name, Namespace: p.spec.Namespace, UID: p.spec.UID,
		CgroupParent: p.spec.CgroupParent,
	}
	for _, c := range spec.Containers {
		out.Containers = append(out.Containers, s.addContainer(p, c))
	}
	return out
}

// AddContainer adds a container to a pod.
func (s *Server) AddContainer(podID string, spec ContainerSpec) Container {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pod(podID)
	if p == nil {
		s.tb.Fatalf("critest: add container: no pod %q", podID)
	}
	return s.addContainer(p, spec)
}

// newPID returns fake process ids from the top of the range, which a test machine does not use.
func (s *Server) newPID() int {
	s.added.pids++
	return 1<<22 - s.added.pids
}

// pod finds a pod; nil = not found.
func (s *Server) pod(id string) *pod {
	for _, p := range s.pods {
		if p.spec.ID == id {
			return p
		}
	}
	return nil
}

// Has reports whether the runtime has a sandbox, container or image with this id.
func (s *Server) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod(id) != nil || s.containers[id] != nil || s.image(id) != nil
}

// Forget removes a sandbox, container or image at once and without a call, as if another client had
// removed it.
func (s *Server) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pod(id) != nil:
		s.removePod(s.pod(id))
	case s.containers[id] != nil:
		s.removeContainer(s.containers[id])
	case s.image(id) != nil:
		s.removeImage(s.image(id))
	}
}

// SetImageFilesystem sets the directory that ImageFsInfo reports, initially an existing empty one.
func (s *Server) SetImageFilesystem(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imageFS = dir
}
