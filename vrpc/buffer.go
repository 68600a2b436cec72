package vrpc

import (
	"sync"

	"github.com/vmmc-go/vmmc/xdr"
)

// buffer is memory for a message. A reply comes behind what it has already.
type buffer struct {
	b    []byte
	none bool // there is no reply
}

func (b *buffer) begin(e *xdr.Encoder) { e.Reset(b.b) }

func (b *buffer) end(e *xdr.Encoder) {
	if b.none = e == nil; !b.none {
		b.b = e.Bytes()
	}
}

// keep is the capacity beyond which memory is the collector's again.
const keep = 2 << 20

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) give() {
	if cap(b.b) <= keep {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}
