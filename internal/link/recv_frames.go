package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// bufferSize is the most that one receive call brings beyond a payload's memory. A link holds a
// buffer only while it is polled, or was a moment ago (see [rearmWatchdog]), or while the buffer
// holds part of a frame.
const bufferSize = 16 << 10

// maxRecvCall bounds one receive call, during which the garbage collector cannot stop the thread.
const maxRecvCall = 1 << 20

var bufferPool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// maxRecvBytes bounds the bytes of one receive, whatever calls are left.
const maxRecvBytes = 8 << 20

// receiver turns the socket's bytes into frames. The kernel writes payloads straight to their
// memory, except bytes that came along with a header.
type receiver struct {
	io         unix.IO
	passedFDs  *unix.Passed // nil: the peer cannot send descriptors.
	expectsFDs bool         // Descriptors are expected.
	cipher     Cipher       // nil: not encrypted.
	viaSpecial bool         // passedFDs or cipher is set.
	// No calls are left; only data that the cipher holds is received.
	quantumOver bool
	buf         *[bufferSize]byte
	start, end  int         // start:end is the unread part of buf.
	hdr         wire.Header // The frame whose payload is arriving.
	// Number of the next frame on this connection, modulo 2^32.
	frameNumber uint32
	// Memory for the next bytes. Empty: ask payloadBuffer.
	dst     []byte
	discard bool // The payload is discarded.
	need    int  // Payload bytes still to come.

	// dst may fault: the program may have unmapped it. Guarded by rmu.
	mayFault bool

	checksum bool // Payloads have checksums. Set before the start.
	// All data passes through buf: others could write to a payload in place before it is summed, or
	// it is decrypted there. Set before the start.
	buffered       bool
	sum            uint32        // Checksum of the payload so far.
	checksumErrors atomic.Uint64 // Frames with a wrong checksum.

	// The socket supports peeking piece by piece. See consumeIfDue.
	canPeek bool
	peeking bool // Short messages come one by one.
	// Bytes that were processed but are still in the socket.
	peeked     int
	peeks      int // Peeks since the socket was emptied.
	emptyPeeks int // Peeks since anything arrived.
}

// receive makes at most maxCalls receive calls. got reports whether a frame was completed or
// payload moved.
func (r *receiver) receive(s *stream, maxCalls int) (got bool, err error) {
	if s.fd < 0 {
		return false, nil
	}
	if r.buf == nil {
		r.buf = bufferPool.Get().(*[bufferSize]byte)
	}
	r.peeking = r.peeking && maxCalls == 1
	if r.peeked > 0 {
		if err := r.consumeIfDue(s.fd); err != nil {
			return false, err
		}
	}
	brought := 0
	for i := 0; i < maxCalls && brought < maxRecvBytes || r.cipherHasData(); i++ {
		if i == 1 && maxCalls > 1 && s.leaveToWaiter() {
			maxCalls = 1
			if !r.cipherHasData() {
				break
			}
		}
		r.quantumOver = i >= maxCalls
		n, rerr := r.fill(s.fd, s.h)
		if rerr != nil {
			if err = rerr; errors.Is(err, wire.ErrCorrupt) {
				r.checksumErrors.Add(1)
			}
			break
		}
		if n == 0 {
			break
		}
		got = true
		brought += n
		if err = r.parse(s.h); err != nil {
			if errors.Is(err, wire.ErrCorrupt) {
				r.checksumErrors.Add(1)
			}
			break
		}
	}
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
	return got, err
}

// recv makes one call that takes data out of the socket.
func (r *receiver) recv(fd int, a, b []byte) (int, error) {
	switch {
	case !r.viaSpecial:
		return r.io.Recv(fd, a, b)
	case r.cipher != nil:
		if r.quantumOver { // data in the socket raises an event
			fd = -1
		}
		return r.cipher.Recv(fd, a)
	}
	n, err := r.io.RecvPassed(fd, a, b, r.passedFDs)
	if most := maxImports; r.passedFDs.Len() > 0 && (!r.expectsFDs || r.passedFDs.Len() > most) {
		err = protocol("%d descriptors that are not awaited", r.passedFDs.Len())
	}
	return n, err
}

// cipherHasData reports whether there is more data that no event tells of.
func (r *receiver) cipherHasData() bool { return r.cipher != nil && r.cipher.HasData() }

// fill makes one receive call.
func (r *receiver) fill(fd int, h frameHandler) (n int, err error) {
	if r.peeked > 0 && (r.need > 0 || r.end > 0) { // a peek has ended in the middle of a frame
		if err := r.consumePeeked(fd); err != nil {
			return 0, err
		}
	}
	if r.need > 0 { // then the buffer is empty
		r.requestBuffer(h)
		if r.discard && !r.buffered {
			n, err = r.recv(fd, r.buf[:min(r.need, bufferSize)], nil)
			r.need -= n
			return n, err
		}
		if r.buffered {
			n, err = r.recv(fd, r.buf[:], nil)
			r.start, r.end = 0, n
			return n, err
		}
		over := bufferSize
		// the next payload is likely as long, and bytes in the buffer are copied twice
		if r.need > bufferSize {
			over = wire.HeaderSize + maxInline
		}
		dst, behind := r.dst, r.buf[:over]
		if len(dst) > maxRecvCall {
			dst, behind = dst[:maxRecvCall], nil
		}
		n, err = r.recv(fd, dst, behind)
		if err != nil && unix.Faulted(err) { // the kernel keeps what it could not store
			h.storeFaulted(fmt.Errorf("%w: %w", shm.ErrForbidden, err))
			r.discardRest()
			return r.fill(fd, h)
		}
		k := min(n, len(dst)) // the rest, maybe of this payload too, is in the buffer
		r.dst, r.need = r.dst[k:], r.need-k
		r.start, r.end = 0, n-k
		return n, err
	}
	if r.start > 0 {
		r.end = copy(r.buf[:], r.buf[r.start:r.end])
		r.start = 0
	}
	if r.peeking && r.end == 0 {
		n, err = r.io.Peek(fd, r.buf[:])
		if n > 0 {
			r.peeked, r.emptyPeeks = r.peeked+n, 0
			r.peeks++
		}
		r.end = n
		return n, err
	}
	n, err = r.recv(fd, r.buf[r.end:], nil)
	r.end += n
	r.peeking = r.canPeek && n > 0 && n <= wire.HeaderSize+maxInline
	return n, err
}

// parse processes the buffer.
func (r *receiver) parse(h frameHandler) error {
	for {
		for r.need > 0 && r.start < r.end {
			r.requestBuffer(h)
			k := min(r.need, r.end-r.start)
			if !r.discard {
				k = min(k, len(r.dst))
			}
			if r.checksum {
				r.sum = wire.Sum(r.sum, r.buf[r.start:r.start+k])
			}
			switch {
			case r.discard:
			case !r.mayFault:
				shm.CopyUnchecked(r.dst, r.buf[r.start:r.start+k])
				r.dst = r.dst[k:]
			default:
				if err := shm.TryCopyUnchecked(r.dst[:k], r.buf[r.start:r.start+k]); err != nil {
					h.storeFaulted(err)
					r.discardRest()
				} else {
					r.dst = r.dst[k:]
				}
			}
			r.start += k
			r.need -= k
		}
		if r.need > 0 {
			return nil
		}
		if r.hdr.Type != 0 {
			if r.checksum && r.sum != r.hdr.Sum {
				return r.hdr.Corrupt(r.sum)
			}
			if err := h.handleFrame(&r.hdr); err != nil {
				return err
			}
			r.hdr.Type, r.dst = 0, nil
		}
		r.discard = false
		if r.end-r.start < wire.HeaderSize {
			return nil
		}
		if err := r.hdr.Parse(r.buf[r.start:r.end], r.frameNumber); err != nil {
			return err
		}
		r.frameNumber++
		r.start += wire.HeaderSize
		r.sum = 0
		r.need = int(r.hdr.Chunk)
		if !r.hdr.Known() || r.hdr.Type == wire.Pad {
			r.hdr.Type, r.discard = 0, true
			continue
		}
		if err := h.checkFrame(&r.hdr); err != nil {
			return err
		}
	}
}

// When a receive call takes the second short segment out of a socket and empties it, TCP sends an
// acknowledgement, a packet of its own, from within the call unless something was sent the other
// way. That is more than half of the cost of such a message. So a waiter that receives short
// messages one by one only peeks at them and leaves their bytes in the socket. After maxPeeks
// peeks, or maxEmptyPeeks without data, it takes all of them out by one call: the peer's TCP sends
// only so much without an acknowledgement.
const (
	maxPeeks      = 8
	maxEmptyPeeks = 32
)

// consumeIfDue empties the socket if it is time to.
func (r *receiver) consumeIfDue(fd int) error {
	r.emptyPeeks++
	if r.peeking && r.peeks < maxPeeks && r.emptyPeeks < maxEmptyPeeks {
		return nil
	}
	return r.consumePeeked(fd)
}

// consumePeeked takes all peeked bytes out of the socket.
func (r *receiver) consumePeeked(fd int) error {
	r.peeks, r.emptyPeeks = 0, 0
	n := r.peeked
	if n == 0 {
		return nil
	}
	k, err := r.io.Discard(fd, n)
	r.peeked -= k
	if err == nil && k < n { // otherwise they would be received again
		err = protocol("%d of %d bytes that were there are in the socket still", n-k, n)
	}
	return err
}

// requestBuffer asks for the memory of the next payload bytes.
func (r *receiver) requestBuffer(h frameHandler) {
	if len(r.dst) == 0 && !r.discard {
		r.dst = h.payloadBuffer(r.need)
		r.discard = len(r.dst) == 0
	}
}

// midFrame reports whether part of a frame is here whose rest is still to come.
func (r *receiver) midFrame() bool { return r.need > 0 || r.start < r.end }

// discardRest discards the rest of the current payload.
func (r *receiver) discardRest() { r.dst, r.discard = nil, true }

// dropBuffer makes the memory of the next byte be asked for again.
func (r *receiver) dropBuffer() { r.dst = nil }

// releaseBuffer gives the buffer back unless it holds data.
func (r *receiver) releaseBuffer() {
	if r.buf != nil && r.start == r.end {
		bufferPool.Put(r.buf)
		r.buf = nil
	}
}

// reset discards the state of a lost connection.
func (r *receiver) reset() {
	if r.buf != nil {
		bufferPool.Put(r.buf)
	}
	r.buf, r.dst, r.hdr.Type = nil, nil, 0
	r.start, r.end, r.need, r.discard, r.frameNumber = 0, 0, 0, false, 0
	r.peeking, r.peeked, r.peeks, r.emptyPeeks = false, 0, 0, 0
	r.cipher, r.viaSpecial = nil, r.passedFDs != nil
}

func (r *receiver) close() {
	if r.buf != nil {
		bufferPool.Put(r.buf)
		r.buf = nil
	}
	r.dst = nil
	r.cipher = nil // the transmitter drops it
	r.refuseFDs(-1)
}

// expectFDs lets the peer of fd send descriptors.
func (r *receiver) expectFDs(fd int) {
	if r.passedFDs != nil && !r.expectsFDs {
		r.expectsFDs = true
		unix.AwaitRights(fd)
	}
}

// refuseFDs accepts no more descriptors. fd is -1 without a connection.
func (r *receiver) refuseFDs(fd int) {
	if r.passedFDs == nil {
		return
	}
	if r.expectsFDs = false; fd >= 0 {
		unix.RefuseRights(fd)
	}
	foreign.Close(r.passedFDs.Rest()...)
}
