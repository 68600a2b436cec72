package vrpc

import (
	"fmt"
	"sync"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/xdr"
)

// codec is what encodes a call and decodes its reply. It is kept, as interfaces have it in the
// heap.
type codec struct {
	e     xdr.Encoder
	d     xdr.Decoder
	call  rpcmsg.Call
	reply rpcmsg.Reply
}

var codecs = sync.Pool{New: func() any { return new(codec) }}

// appendCall appends a call to b, which it may have no longer than limit.
func appendCall(b []byte, h *rpcmsg.Call, args xdr.Marshaler, limit int) ([]byte, error) {
	c := codecs.Get().(*codec)
	defer codecs.Put(c)
	c.e.Reset(b)
	c.call = *h
	c.call.EncodeXDR(&c.e)
	args.EncodeXDR(&c.e)
	out, err := c.e.Bytes(), c.e.Err()
	c.e.Reset(nil)
	c.call = rpcmsg.Call{}
	if err != nil {
		return b, err
	}
	if n := len(out) - len(b); n > limit {
		return b, fmt.Errorf("%w: %d bytes, %d at most", ErrTooLarge, n, limit)
	}
	return out, nil
}

// decodeReply decodes what a server has answered.
func decodeReply(b []byte, res xdr.Unmarshaler, decoded int) error {
	c := codecs.Get().(*codec)
	defer codecs.Put(c)
	return c.decodeReply(b, res, decoded)
}

// decodeReply is the function of that name. If decoded is not 0 it bounds the memory that the
// results take.
func (c *codec) decodeReply(b []byte, res xdr.Unmarshaler, decoded int) error {
	c.d.Reset(b, xdr.InPlace)
	c.reply.DecodeXDR(&c.d)
	if err := failure(&c.reply); err != nil && c.d.OK() {
		return err
	}
	if c.d.OK() {
		c.d.Reset(c.d.Rest(), xdr.Copy)
		if decoded > 0 {
			c.d.Limit(decoded)
		}
		res.DecodeXDR(&c.d)
	}
	err, left := c.d.Err(), len(c.d.Rest())
	c.d.Reset(nil, xdr.Copy)
	c.reply = rpcmsg.Reply{}
	if err == nil && left > 0 {
		err = fmt.Errorf("%w: %d", xdr.ErrTrailing, left)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	return nil
}

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

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if cap(b.b) <= keep {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}
