package nodeproto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxPacket bounds a packet, MaxDescriptors what may come with one: the most
// have grants of redirectable exports.
const (
	MaxPacket      = 64 << 10
	MaxDescriptors = 32
)

// MaxTargets is how many memories an export can be redirected to that importers
// map: a descriptor each, beside those of the buffer and two pages.
const MaxTargets = MaxDescriptors - 3

const (
	magic      = 0x314c4d56 // "VML1"
	headerSize = 16
)

// Kind of a packet.
type kind uint8

const (
	request kind = iota + 1
	reply
	failure
	cancel
)

// header begins each packet; JSON follows.
type header struct {
	kind   kind
	fds    uint8
	method Method
	id     uint64
}

// ErrPacket is what every malformed packet is.
var ErrPacket = errors.New("malformed packet")

func encode(h header, body any) ([]byte, error) {
	b := make([]byte, headerSize, 512)
	binary.LittleEndian.PutUint32(b, magic)
	b[4], b[5] = byte(h.kind), h.fds
	binary.LittleEndian.PutUint16(b[6:], uint16(h.method))
	binary.LittleEndian.PutUint64(b[8:], h.id)
	if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		b = append(b, j...)
	}
	if len(b) > MaxPacket {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrPacket, len(b), MaxPacket)
	}
	return b, nil
}

func parse(b []byte) (header, []byte, error) {
	if len(b) < headerSize {
		return header{}, nil, fmt.Errorf("%w: %d bytes, at least %d", ErrPacket, len(b), headerSize)
	}
	if len(b) > MaxPacket {
		return header{}, nil, fmt.Errorf("%w: %d bytes or more, at most %d", ErrPacket, len(b), MaxPacket)
	}
	if m := binary.LittleEndian.Uint32(b); m != magic {
		return header{}, nil, fmt.Errorf("%w: begins with %#x, want %#x: is the other end vmmc, of a "+
			"version that speaks protocol %d?", ErrPacket, m, magic, Version)
	}
	h := header{
		kind: kind(b[4]), fds: b[5], method: Method(binary.LittleEndian.Uint16(b[6:])),
		id: binary.LittleEndian.Uint64(b[8:]),
	}
	if h.kind < request || h.kind > cancel || h.fds > MaxDescriptors {
		return header{}, nil, fmt.Errorf("%w: kind %d with %d descriptors", ErrPacket, h.kind, h.fds)
	}
	return h, b[headerSize:], nil
}

// Decode reads a body.
func Decode[T any](body []byte) (v T, err error) {
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("%w: %w", ErrPacket, err)
	}
	return v, nil
}
