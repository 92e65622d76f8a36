package critest

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
)

// crioStopMargin is the part of StopPodSandbox's deadline that CRI-O reserves for itself.
// crioStopDefault is the grace period of a call without a deadline.
const (
	crioStopMargin  = 2 * time.Second
	crioStopDefault = 9 * time.Second
)

// StopContainer sends SIGTERM and, after the timeout, SIGKILL. With a timeout of 0, containerd kills at
// once and CRI-O sends both. If the client's deadline ends first, containerd never kills; CRI-O still
// does.
func (v *runtimeService) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[req.GetContainerId()]
	if c == nil {
		if s.traits.missingIsNotFound {
			return nil, notFound("container", req.GetContainerId())
		}
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if c.state != cri.Running {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if !s.traits.crio {
		if err := s.askShim(ctx, c.pod); err != nil {
			return nil, err
		}
	}
	grace := time.Duration(min(max(req.GetTimeout(), 0), int64(math.MaxInt64/time.Second))) * time.Second
	if grace > 0 || s.traits.crio {
		c.term()
	}
	if err := s.waitExit(ctx, grace, c); err != nil {
		return nil, err
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// waitExit waits until the runtime has seen containers exit, and kills those that still run after
// grace. It releases the lock while it waits.
func (s *Server) waitExit(ctx context.Context, grace time.Duration, cs ...*container) error {
	var killAt <-chan time.Time
	if grace > 0 {
		t := time.NewTimer(grace)
		defer t.Stop()
		killAt = t.C
	} else {
		killAll(cs)
	}
	start := time.Now()
	for _, c := range cs {
		for c.state == cri.Running {
			exited := c.exited
			s.mu.Unlock()
			var kill bool
			select {
			case <-exited:
			case <-killAt:
				kill = true
			case <-ctx.Done():
			}
			s.mu.Lock()
			if kill {
				killAll(cs)
				killAt = nil
			} else if ctx.Err() != nil && c.state == cri.Running {
				if s.traits.crio {
					s.killLater(grace-time.Since(start), cs)
				}
				return status.FromContextError(ctx.Err()).Err()
			}
		}
	}
	return nil
}

func (s *Server) killLater(after time.Duration, cs []*container) {
	time.AfterFunc(max(after, 0), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		killAll(cs)
	})
}

func killAll(cs []*container) {
	for _, c := range cs {
		c.kill()
	}
}

// StopPodSandbox: containerd kills everything, then tears down the network. CRI-O tears down the
// network, once, then stops the containers with the deadline less 2 s as their grace period.
func (v *runtimeService) StopPodSandbox(ctx context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pod(req.GetPodSandboxId())
	if p == nil {
		if s.traits.missingIsNotFound {
			return nil, notFound("sandbox", req.GetPodSandboxId())
		}
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	var err error
	if s.traits.crio {
		err = s.stopCRIO(ctx, p)
	} else {
		err = s.stopContainerd(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Server) stopContainerd(ctx context.Context, p *pod) error {
	if p.ready {
		if err := s.askShim(ctx, p); err != nil {
			return err
		}
		if err := s.waitExit(ctx, 0, p.running()...); err != nil {
			return err
		}
		p.down()
	}
	if s.cniBroken {
		return status.Errorf(codes.Unknown, "failed to destroy network for sandbox %q: plugin type=\"bridge\" failed (delete)", p.spec.ID)
	}
	return nil
}

func (s *Server) stopCRIO(ctx context.Context, p *pod) error {
	if s.cniBroken && !p.netDown {
		p.netDown = true
		return status.Errorf(codes.Unknown, "failed to destroy network for pod sandbox %s: plugin type=\"bridge\" failed (delete)", p.spec.ID)
	}
	p.netDown = true
	grace := crioStopDefault
	if deadline, ok := ctx.Deadline(); ok {
		grace = max(0, time.Until(deadline)-crioStopMargin)
	}
	running := slices.Clone(p.running())
	for _, c := range running {
		c.term()
	}
	if err := s.waitExit(ctx, grace, running...); err != nil {
		return err
	}
	p.pause = false
	p.notReady()
	return nil
}
