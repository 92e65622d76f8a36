package etcd

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a message of protocol buffers (https://protobuf.dev/programming-guides/encoding/).
type message interface {
	fields() fields
}

// fields points to the values of a message's fields, by their numbers: *int64, *explicit, *bool, *string (also for
// bytes), *[]string, or nested.
type fields []any

// explicit is a number that is encoded even if it is zero, like every member of a oneof.
type explicit int64

// nested is a field with messages.
type nested interface {
	all() []message
	add() message // to decode the next one
}

// pointer is what a message's type M has to satisfy.
type pointer[M any] interface {
	*M
	message
}

type one[M any, P pointer[M]] struct{ at *P }

// optional makes a field of a pointer to a message, or nil.
func optional[M any, P pointer[M]](at *P) nested { return one[M, P]{at} }

func (o one[M, P]) all() []message {
	if *o.at == nil {
		return nil
	}
	return []message{*o.at}
}

func (o one[M, P]) add() message {
	if *o.at == nil {
		*o.at = new(M)
	}
	return *o.at // a second occurrence is merged into the first
}

type many[M any, P pointer[M]] struct{ at *[]P }

// repeated makes a field of a list of messages.
func repeated[M any, P pointer[M]](at *[]P) nested { return many[M, P]{at} }

func (m many[M, P]) all() []message {
	all := make([]message, len(*m.at))
	for i, v := range *m.at {
		all[i] = v
	}
	return all
}

func (m many[M, P]) add() message {
	v := P(new(M))
	*m.at = append(*m.at, v)
	return v
}

// encode returns a message in its wire format. As in proto3, it omits fields that are zero.
func encode(m message) []byte {
	var b []byte
	for i, at := range m.fields() {
		number := protowire.Number(i)
		varint := func(v uint64) {
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
		}
		text := func(v string) {
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
		}
		switch at := at.(type) {
		case *int64:
			if *at != 0 {
				varint(uint64(*at))
			}
		case *explicit:
			varint(uint64(*at))
		case *bool:
			if *at {
				varint(1)
			}
		case *string:
			if *at != "" {
				text(*at)
			}
		case *[]string:
			for _, v := range *at {
				text(v)
			}
		case nested:
			for _, v := range at.all() {
				text(string(encode(v)))
			}
		}
	}
	return b
}

// decode sets the fields of a message from its wire format. It skips fields that the message does not have, and those of
// another wire type. It copies what it keeps, and does not require UTF-8.
func decode(b []byte, m message) error {
	fields := m.fields()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		value := b[:n]
		b = b[n:]
		if int(number) >= len(fields) {
			continue
		}
		at := fields[number]
		switch kind {
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			setVarint(at, v)
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			if err := setBytes(at, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func setVarint(at any, v uint64) {
	switch at := at.(type) {
	case *int64:
		*at = int64(v)
	case *explicit:
		*at = explicit(v)
	case *bool:
		*at = v != 0
	}
}

func setBytes(at any, v []byte) error {
	switch at := at.(type) {
	case *string:
		*at = string(v)
	case *[]string:
		*at = append(*at, string(v))
	case nested:
		return decode(v, at.add())
	}
	return nil
}

// codec encodes the messages for gRPC.
type codec struct{}

// Marshal implements [encoding.Codec].
func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("encode message: %T is not one", v)
	}
	return encode(m), nil
}

// Unmarshal implements [encoding.Codec].
func (codec) Unmarshal(b []byte, v any) error {
	m, ok := v.(message)
	if !ok {
		return fmt.Errorf("decode message: %T is not one", v)
	}
	if err := decode(b, m); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// Name implements [encoding.Codec]. Without a name, the content type is gRPC's default, which stands for protocol buffers.
func (codec) Name() string { return "" }
