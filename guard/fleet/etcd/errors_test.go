package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestCallError(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		err    error
		ctx    context.Context
		want   error
		reason string
	}{
		{rpctypes.ErrGRPCNoLeader, nil, ErrNoLeader, "no_leader"},
		{rpctypes.ErrGRPCLeaderChanged, nil, ErrNoLeader, "no_leader"},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, nil, ErrNoLeader, "no_leader"},
		{rpctypes.ErrGRPCTimeout, nil, ErrTimeout, "timeout"},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, nil, ErrTimeout, "timeout"},
		{rpctypes.ErrGRPCStopped, nil, ErrUnreachable, "unreachable"},
		{rpctypes.ErrGRPCNotSupportedForLearner, nil, ErrUnreachable, "unreachable"},
		{rpctypes.ErrGRPCNoSpace, nil, ErrNoSpace, "no_space"},
		{rpctypes.ErrGRPCRequestTooManyRequests, nil, ErrRefused, "refused"},
		{rpctypes.ErrGRPCPermissionDenied, nil, ErrPermission, "permission"},
		{rpctypes.ErrGRPCInvalidAuthToken, nil, ErrPermission, "permission"},
		{rpctypes.ErrGRPCUserEmpty, nil, ErrPermission, "permission"},
		{rpctypes.ErrGRPCUserNotFound, nil, ErrPermission, "permission"},
		{rpctypes.ErrGRPCAuthOldRevision, nil, ErrRefused, "refused"},
		{rpctypes.ErrGRPCLeaseNotFound, nil, errLeaseGone, "refused"},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), nil, ErrTimeout, "timeout"},
		{status.Error(codes.Canceled, "context canceled"), ended, context.Canceled, "refused"},
		{status.Error(codes.Canceled, "grpc: the client connection is closing"), nil, ErrUnreachable, "unreachable"},
		{status.Error(codes.Unavailable, "error reading server preface: remote error: tls: bad certificate"), nil, ErrCertificate, "certificate"},
		{status.Error(codes.Unimplemented, "unknown service"), nil, ErrNotEtcd, "not_etcd"},
		{errors.New("unsupported transaction: compare:<>"), nil, ErrNotEtcd, "not_etcd"},
		{errors.New("odd\x1b[31m"), nil, ErrRefused, "refused"},
	} {
		ctx := tt.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		err := callError(ctx, "look", "https://etcd-1:2379", tt.err)
		if !errors.Is(err, tt.want) || Reason(err) != tt.reason || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%v: %v (%s)", tt.err, err, Reason(err))
		}
	}
}

// A failed connection shows the system's error without gRPC's words around it.
func TestDialCause(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused"`: "dial tcp 10.0.0.1:2379: connect: connection refused",
		`connection error: desc = "transport: authentication handshake failed: tls: bad certificate"`:                    "tls: bad certificate",
		`connection error: desc = "error reading server preface: EOF"`:                                                   "error reading server preface: EOF",
		`connection error: desc = "transport: cut sh`:                                                                    "cut sh",
		"etcdserver: no leader": "etcdserver: no leader", "": "",
	} {
		if got := dialCause(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Every kind has a name of its own, and all but the obvious ones have a remedy.
func TestKinds(t *testing.T) {
	names := map[string]bool{}
	for _, k := range kinds {
		err := refuse("look", k.err, "cause")
		if Reason(fmt.Errorf("wrapped: %w", err)) != k.name || names[k.name] {
			t.Errorf("%v has the name %s", k.err, k.name)
		}
		names[k.name] = true
		if k.hint != "" && !strings.HasSuffix(err.Error(), "cause (hint: "+k.hint+")") {
			t.Errorf("no hint: %v", err)
		}
	}
}
