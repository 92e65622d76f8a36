package etcd

// The messages are those of etcdserverpb and mvccpb, with the fields that this package uses
// (https://pkg.go.dev/go.etcd.io/etcd/api/v3/etcdserverpb).

// Full names of the calls.
const (
	rangeCall       = "/etcdserverpb.KV/Range"
	txnCall         = "/etcdserverpb.KV/Txn"
	leaseGrantCall  = "/etcdserverpb.Lease/LeaseGrant"
	leaseRevokeCall = "/etcdserverpb.Lease/LeaseRevoke"
	keepAliveCall   = "/etcdserverpb.Lease/LeaseKeepAlive"
	timeToLiveCall  = "/etcdserverpb.Lease/LeaseTimeToLive"
	statusCall      = "/etcdserverpb.Maintenance/Status"
)

type header struct{ cluster, revision int64 }

func (m *header) fields() fields { return fields{1: &m.cluster, 3: &m.revision} }

type rangeRequest struct {
	key, end            string
	limit, revision     int64
	keysOnly, countOnly bool
}

func (m *rangeRequest) fields() fields {
	return fields{1: &m.key, 2: &m.end, 3: &m.limit, 4: &m.revision, 8: &m.keysOnly, 9: &m.countOnly}
}

type rangeResponse struct {
	header *header
	kvs    []*keyValue
	count  int64
}

func (m *rangeResponse) fields() fields {
	return fields{1: optional(&m.header), 2: repeated(&m.kvs), 4: &m.count}
}

type keyValue struct {
	key, value string
	lease      int64
}

func (m *keyValue) fields() fields { return fields{1: &m.key, 5: &m.value, 6: &m.lease} }

type putRequest struct {
	key, value string
	lease      int64
}

func (m *putRequest) fields() fields { return fields{1: &m.key, 2: &m.value, 3: &m.lease} }

// requestOp is a read or a put.
type requestOp struct {
	read *rangeRequest
	put  *putRequest
}

func (m *requestOp) fields() fields { return fields{1: optional(&m.read), 2: optional(&m.put)} }

// responseOp is the answer to a requestOp. That to a put has nothing of use.
type responseOp struct{ read *rangeResponse }

func (m *responseOp) fields() fields { return fields{1: optional(&m.read)} }

// Values of enumerations.
const (
	equal          = 0
	greater        = 1
	less           = 2
	createRevision = 1
	leaseOfKey     = 4
)

// compare is a condition on the target of a key: the revision that created it, or its lease. Both are 0 for an absent key.
type compare struct {
	result, target int64
	key, end       string
	value          explicit
}

func (m *compare) fields() fields {
	f := fields{1: &m.result, 2: &m.target, 3: &m.key, 5: &m.value, 8: &m.value, 64: &m.end}
	switch m.target { // a message has one value; 0 while it is decoded
	case createRevision:
		f[8] = nil
	case leaseOfKey:
		f[5] = nil
	}
	return f
}

type txnRequest struct {
	compare          []*compare
	success, failure []*requestOp
}

func (m *txnRequest) fields() fields {
	return fields{1: repeated(&m.compare), 2: repeated(&m.success), 3: repeated(&m.failure)}
}

type txnResponse struct {
	header    *header
	succeeded bool
	responses []*responseOp
}

func (m *txnResponse) fields() fields {
	return fields{1: optional(&m.header), 2: &m.succeeded, 3: repeated(&m.responses)}
}

type leaseGrantRequest struct{ ttl, id int64 }

func (m *leaseGrantRequest) fields() fields { return fields{1: &m.ttl, 2: &m.id} }

type leaseGrantResponse struct {
	id, ttl int64
	error   string
}

func (m *leaseGrantResponse) fields() fields { return fields{2: &m.id, 3: &m.ttl, 4: &m.error} }

// leaseRequest revokes or renews a lease, or asks for its time to live.
type leaseRequest struct{ id int64 }

func (m *leaseRequest) fields() fields { return fields{1: &m.id} }

type keepAliveResponse struct{ ttl int64 }

func (m *keepAliveResponse) fields() fields { return fields{3: &m.ttl} }

type timeToLiveResponse struct{ ttl, granted int64 }

func (m *timeToLiveResponse) fields() fields { return fields{3: &m.ttl, 4: &m.granted} }

type statusResponse struct {
	header      *header
	version     string
	size, quota int64
	errors      []string
}

func (m *statusResponse) fields() fields {
	return fields{1: optional(&m.header), 2: &m.version, 3: &m.size, 8: &m.errors, 12: &m.quota}
}

// blank is a message without fields, or none of use.
type blank struct{}

func (*blank) fields() fields { return nil }
