package etcd

import (
	"math"
	"reflect"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Requests are to etcd's own package what its own are. The order of the fields is free.
func TestEncode(t *testing.T) {
	reads := func(r *pb.RangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	}
	limited := list("/registry/", true)
	limited.read.limit = 1
	created := &pb.Compare_CreateRevision{}
	for _, tt := range []struct {
		own   message
		etcds proto.Message
	}{
		{get("a"), reads(&pb.RangeRequest{Key: []byte("a")})},
		{count("a/"), reads(&pb.RangeRequest{Key: []byte("a/"), RangeEnd: []byte("a0"), CountOnly: true})},
		{list("a/", false), reads(&pb.RangeRequest{Key: []byte("a/"), RangeEnd: []byte("a0")})},
		{limited, reads(&pb.RangeRequest{Key: []byte("/registry/"), RangeEnd: []byte("/registry0"), KeysOnly: true, Limit: 1})},
		{&rangeRequest{key: "a", revision: 1}, &pb.RangeRequest{Key: []byte("a"), Revision: 1}},
		{&requestOp{read: &rangeRequest{}}, reads(&pb.RangeRequest{})},
		{put("a", "\xff\x00", -1), &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), Value: []byte("\xff\x00"), Lease: -1}}}},
		{absent("a"), &pb.Compare{Key: []byte("a"), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, TargetUnion: created}},
		{noneBelow("a/"), &pb.Compare{Key: []byte("a/"), RangeEnd: []byte("a0"), Target: pb.Compare_CREATE, TargetUnion: created}},
		{&compare{result: less, target: createRevision, key: "a", value: 7}, &pb.Compare{
			Key: []byte("a"), Target: pb.Compare_CREATE, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 7},
		}},
		{hasLease("a", 7), &pb.Compare{Key: []byte("a"), Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: 7}}},
		{hasLease("a", 0), &pb.Compare{Key: []byte("a"), Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{}}},
		{&txnRequest{compare: []*compare{absent("a"), absent("b")}, success: []*requestOp{get("c"), get("d")}, failure: []*requestOp{get("e")}}, &pb.TxnRequest{
			Compare: []*pb.Compare{
				{Key: []byte("a"), Target: pb.Compare_CREATE, TargetUnion: created},
				{Key: []byte("b"), Target: pb.Compare_CREATE, TargetUnion: created},
			},
			Success: []*pb.RequestOp{reads(&pb.RangeRequest{Key: []byte("c")}), reads(&pb.RangeRequest{Key: []byte("d")})},
			Failure: []*pb.RequestOp{reads(&pb.RangeRequest{Key: []byte("e")})},
		}},
		{&txnRequest{}, &pb.TxnRequest{}},
		{&leaseGrantRequest{ttl: 10800, id: 1 << 62}, &pb.LeaseGrantRequest{TTL: 10800, ID: 1 << 62}},
		{&leaseRequest{id: 1 << 62}, &pb.LeaseRevokeRequest{ID: 1 << 62}},
		{&leaseRequest{id: 7}, &pb.LeaseKeepAliveRequest{ID: 7}},
		{&leaseRequest{id: 7}, &pb.LeaseTimeToLiveRequest{ID: 7}},
		{&blank{}, &pb.StatusRequest{}},
	} {
		want, got := marshal(t, tt.etcds), encode(tt.own)
		decoded := tt.etcds.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(got, decoded); err != nil || !proto.Equal(decoded, tt.etcds) || len(got) != len(want) {
			t.Errorf("%v:\n%x, want\n%x", tt.etcds, got, want)
		}
		copied := blankOf(tt.own)
		if err := decode(want, copied); err != nil || !reflect.DeepEqual(copied, tt.own) {
			t.Errorf("%v: decoded %+v, %v", tt.etcds, copied, err)
		}
	}
}

// response is a kind of response, with an example in which every field is set.
type response struct {
	own   message
	etcds proto.Message
}

func responses() []response {
	common := &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 2, Revision: 3, RaftTerm: 4}
	kv := &mvccpb.KeyValue{Key: []byte("k"), CreateRevision: 2, ModRevision: 3, Version: 4, Value: []byte("\xff"), Lease: 1 << 62}
	ranges := &pb.RangeResponse{Header: common, Kvs: []*mvccpb.KeyValue{kv, {}}, More: true, Count: 300}
	own := &rangeResponse{header: &header{math.MinInt64, 3}, kvs: []*keyValue{{"k", "\xff", 1 << 62}, {}}, count: 300}
	return []response{
		{own, ranges},
		{&txnResponse{header: &header{math.MinInt64, 3}, succeeded: true, responses: []*responseOp{{own}, {}, {}}}, &pb.TxnResponse{Header: common, Succeeded: true, Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: ranges}},
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: common, PrevKv: kv}}},
			{},
		}}},
		{&leaseGrantResponse{id: -5, ttl: 60, error: "é"}, &pb.LeaseGrantResponse{Header: common, ID: -5, TTL: 60, Error: "é"}},
		{&keepAliveResponse{ttl: -1}, &pb.LeaseKeepAliveResponse{Header: common, ID: 5, TTL: -1}},
		{&timeToLiveResponse{ttl: 9, granted: 10}, &pb.LeaseTimeToLiveResponse{Header: common, ID: 5, TTL: 9, GrantedTTL: 10, Keys: [][]byte{[]byte("k")}}},
		{&statusResponse{header: &header{math.MinInt64, 3}, version: "3.6.1", size: 3, quota: 12, errors: []string{"a", "", "b"}}, &pb.StatusResponse{
			Header: common, Version: "3.6.1", DbSize: 3, Leader: 4, RaftIndex: 5, RaftTerm: 6, RaftAppliedIndex: 7, Errors: []string{"a", "", "b"},
			DbSizeInUse: 9, IsLearner: true, StorageVersion: "3.6", DbSizeQuota: 12, DowngradeInfo: &pb.DowngradeInfo{Enabled: true},
		}},
		{&blank{}, &pb.LeaseRevokeResponse{Header: common}},
	}
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// blankOf returns an empty message of the type of m.
func blankOf(m message) message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(message) }

func TestDecode(t *testing.T) {
	for _, r := range responses() {
		got := blankOf(r.own)
		if err := decode(marshal(t, r.etcds), got); err != nil || !reflect.DeepEqual(got, r.own) {
			t.Errorf("%v: %+v, %v", r.etcds, got, err)
		}
	}
}

// Any response that etcd's own package accepts is accepted. One that it can send has the same values here, apart from
// the fields that are not used.
func FuzzDecode(f *testing.F) {
	for i, r := range responses() {
		b, err := proto.Marshal(r.etcds)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, b)
		f.Add(i, b[:len(b)-1])
		f.Add(i, append(b, b...))
		f.Add(i, append(b, 0x0b, 0x08, 0x01, 0x0c, 0x12, 0x00, 0x18, 0x01, 0x80)) // groups, other types, truncated
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		all := responses()
		if i < 0 || i >= len(all) {
			return
		}
		own, etcds := all[i].own, all[i].etcds.ProtoReflect().New().Interface()
		err := decode(b, blankOf(own))
		if proto.Unmarshal(b, etcds) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		got := blankOf(own)
		if err := decode(marshal(t, etcds), got); err != nil {
			t.Fatalf("%v: %v", etcds, err)
		}
		prune(etcds.ProtoReflect(), blankOf(own))
		again := etcds.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(encode(got), again); err != nil || !proto.Equal(again, etcds) {
			t.Errorf("%v: %v, %v", etcds, again, err)
		}
	})
}

// prune removes the fields that own lacks.
func prune(m protoreflect.Message, own message) {
	table := own.fields()
	m.SetUnknown(nil)
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		number := int(d.Number())
		switch {
		case number >= len(table) || table[number] == nil:
			m.Clear(d)
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				prune(v.List().Get(i).Message(), table[number].(nested).add())
			}
		default:
			prune(v.Message(), table[number].(nested).add())
		}
		return true
	})
}

// Input that is no message is an error, as is a value that is none.
func TestCodecErrors(t *testing.T) {
	for _, text := range []string{"\x80", "\x08", "\x0a\x02a", "\x00\x00", "\x0c", "\x0b", "\x1a\x02\x0a\x05"} {
		if err := (codec{}).Unmarshal([]byte(text), &txnResponse{}); err == nil {
			t.Errorf("%x: no error", text)
		}
	}
	if _, err := (codec{}).Marshal("text"); err == nil {
		t.Error("encoded text")
	}
	if err := (codec{}).Unmarshal(nil, new(string)); err == nil {
		t.Error("decoded text")
	}
}
