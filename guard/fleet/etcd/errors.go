package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Every error of a call is one of these, or context.Canceled if the caller gave up. The text of a call's error ends with
// the remedy, if there is one.
var (
	// ErrUnreachable: no endpoint accepts a connection, or the connection broke.
	ErrUnreachable = errors.New("etcd is not reachable")
	// ErrTimeout: no answer came within the client's timeout. etcd may still perform the request.
	ErrTimeout = errors.New("etcd did not answer in time")
	// ErrNoLeader: the members that answer have no majority.
	ErrNoLeader = errors.New("etcd has no leader")
	// ErrNoSpace: the database has reached its quota, so etcd refuses writes.
	ErrNoSpace = errors.New("etcd is out of space")
	// ErrPermission: the certificate's user lacks a role, or has none.
	ErrPermission = errors.New("etcd denied permission")
	// ErrCertificate: one side does not accept the other's certificate.
	ErrCertificate = errors.New("certificate not accepted")
	// ErrNotEtcd: the server has leases of another kind, or refuses transactions that etcd knows.
	ErrNotEtcd = errors.New("the server is not etcd")
	// ErrKubernetes: the etcd holds the objects of a Kubernetes API server.
	ErrKubernetes = errors.New("this is the etcd of a Kubernetes cluster")
	// ErrMinTTL: etcd granted a longer lease than requested, so a slot would be longer than its rate says.
	ErrMinTTL = errors.New("the slot is shorter than etcd's shortest lease")
	// ErrPolicy: the operators' rates cannot be read.
	ErrPolicy = errors.New("the policy in etcd is invalid")
	// ErrRefused: etcd returned another error, or an unexpected answer. Its message follows.
	ErrRefused = errors.New("etcd refused")
	// errLeaseGone: there is no such lease; it expired or was revoked.
	errLeaseGone = errors.New("the lease is gone")
)

var kinds = []struct {
	err        error
	name, hint string
}{
	{ErrUnreachable, "unreachable", ""},
	{ErrTimeout, "timeout", ""},
	{ErrNoLeader, "no_leader", "a majority of its members must run and reach each other"},
	{ErrNoSpace, "no_space", "compact and defragment it, raise its quota, and disarm the alarm"},
	{ErrPermission, "permission", "grant the certificate's user the role of this fleet and zone"},
	{ErrCertificate, "certificate", "compare [tls] with etcd's files and their validity"},
	{ErrNotEtcd, "not_etcd", "kine and other translators lack real leases and transactions; run an etcd for the fleet"},
	{ErrKubernetes, "kubernetes", "run an etcd for the fleet"},
	{ErrMinTTL, "min_ttl", "lower the rate, or etcd's --election-timeout"},
	{ErrPolicy, "policy", "set the rates again"},
}

// Reason returns the short name of an error of this package, for JSON and metrics; "refused" for all others.
func Reason(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return "refused"
}

// Reasons returns all short names of errors.
func Reasons() []string {
	names := []string{"refused"}
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// maxCause limits how much of a server's message an error repeats, in bytes.
const maxCause = 512

// callError turns the gRPC error of a call to an endpoint into one of the package's errors. ctx is the context of the
// call. etcd uses codes loosely, so some cases need the text, which is part of its API
// (https://pkg.go.dev/go.etcd.io/etcd/api/v3/v3rpc/rpctypes).
func callError(ctx context.Context, op, endpoint string, err error) error {
	st, _ := status.FromError(err)
	cause := dialCause(clean(st.Message()))
	kind := ErrRefused
	switch st.Code() {
	case codes.Canceled:
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", op, context.Canceled)
		}
		kind = ErrUnreachable // another call closed the connection
	case codes.DeadlineExceeded:
		kind = ErrTimeout
	case codes.Unavailable:
		kind = unavailable(cause)
	case codes.ResourceExhausted:
		if strings.Contains(cause, "space exceeded") {
			kind = ErrNoSpace
		}
	case codes.PermissionDenied, codes.Unauthenticated:
		kind = ErrPermission
	case codes.InvalidArgument, codes.FailedPrecondition:
		switch {
		case strings.Contains(cause, "user name"): // the certificate has no common name, or one that is no user
			kind = ErrPermission
		case strings.Contains(cause, "not supported for learner"): // this member has no vote yet; etcd 3.5 says Unavailable
			kind = ErrUnreachable
		}
	case codes.NotFound:
		if strings.Contains(cause, "lease not found") {
			kind = errLeaseGone
		}
	case codes.Unimplemented:
		kind = ErrNotEtcd
	case codes.Unknown:
		if strings.Contains(cause, "unsupported transaction") { // kine knows the transactions of Kubernetes only
			kind = ErrNotEtcd
		}
	}
	return refuse(op, kind, endpoint+": "+cause)
}

// dialCause returns the cause of a connection that failed without the layers that gRPC puts around it.
func dialCause(cause string) string {
	inner, ok := strings.CutPrefix(cause, `connection error: desc = "`)
	if !ok {
		return cause
	}
	inner = strings.TrimSuffix(inner, `"`)
	for _, layer := range []string{"transport: ", "Error while dialing: ", "authentication handshake failed: "} {
		inner = strings.TrimPrefix(inner, layer)
	}
	return inner
}

func unavailable(cause string) error {
	switch {
	case strings.Contains(cause, "tls: ") || strings.Contains(cause, "x509: "):
		return ErrCertificate
	case strings.Contains(cause, "no leader") || strings.Contains(cause, "leader failure") || strings.Contains(cause, "leader changed"):
		return ErrNoLeader
	case strings.Contains(cause, "request timed out"):
		return ErrTimeout
	}
	return ErrUnreachable
}

// isEndpoints reports whether another endpoint may answer a call that failed with err.
func isEndpoints(err error) bool {
	for _, kind := range []error{ErrUnreachable, ErrTimeout, ErrNoLeader, ErrCertificate} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// isUnknown reports whether etcd may have performed a call that failed with err.
func isUnknown(err error) bool { return isEndpoints(err) || errors.Is(err, context.Canceled) }

// refuse returns an error of a kind, with its cause and the remedy.
func refuse(op string, kind error, cause string) error {
	hint := ""
	for _, k := range kinds {
		if errors.Is(kind, k.err) && k.hint != "" {
			hint = " (hint: " + k.hint + ")"
		}
	}
	return fmt.Errorf("%s: %w: %s%s", op, kind, cause, hint)
}

// clean makes text from a server fit for one line of a log.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s[:min(len(s), maxCause)])
	return strings.TrimSpace(s)
}

func isGone(err error) bool { return errors.Is(err, errLeaseGone) }

func isDenied(err error) bool { return errors.Is(err, ErrPermission) }
