package vmmc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// numbers gives frames the numbers that they have on their connection, so that they are refused for
// what they say and not for that; the zero value is of a new one.
type numbers struct {
	next uint32
	rest int // payload still to come of the last frame
	lost bool
}

// in gives the headers in b the checksums that go with their numbers; they were made as each the
// first frame. What is no such header, and all behind it, stays as it is.
func (n *numbers) in(b []byte) []byte {
	b = bytes.Clone(b)
	at := min(n.rest, len(b))
	n.rest -= at
	for !n.lost && at+wire.HeaderSize <= len(b) {
		raw := b[at : at+wire.HeaderSize]
		var h wire.Header
		if n.lost = errors.Is(h.Parse(raw, 0), wire.ErrCorrupt); n.lost {
			break
		}
		binary.LittleEndian.PutUint32(raw[60:], crc32.Update(n.next, crc32.MakeTable(crc32.Castagnoli), raw[:60]))
		n.next++
		at += wire.HeaderSize
		n.rest = max(0, int(h.Chunk)-(len(b)-at))
		at = min(len(b), at+int(h.Chunk))
	}
	return b
}

// parsed reads a header that may be of any of the first frames of its connection.
func parsed(h *wire.Header, b []byte) (err error) {
	for n := range uint32(1 << 16) {
		if err = h.Parse(b, n); !errors.Is(err, wire.ErrCorrupt) {
			break
		}
	}
	return err
}
