package vrpc

import "sync"

// buffer is memory for a message.
type buffer struct{ b []byte }

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
