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

// bufferSize is what one receive call may bring beyond a payload's place. Links
// hold a buffer only while somebody looks at them, or did a moment ago (see [guard]), and while
// part of a frame is in it.
const bufferSize = 16 << 10

// maxRecvCall is what one call takes out of the socket at most: for as long the collector cannot stop the thread.
const maxRecvCall = 1 << 20

var bufferPool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// maxRecvBytes is after how many bytes a turn is over, however many calls it may have left.
const maxRecvBytes = 8 << 20

// receiver turns the socket's bytes into frames. Payload goes from the kernel
// straight to its place, except what came along with a header.
type receiver struct {
	io          unix.IO
	passedFDs   *unix.Passed // nil: the far end cannot send descriptors
	expectsFDs  bool         // descriptors
	cipher      Cipher       // nil: in clear
	viaSpecial  bool         // one of these two is there
	quantumOver bool         // the turns are, and what the cipher keeps goes on
	buf         *[bufferSize]byte
	start, end  int         // unread part of buf
	hdr         wire.Header // the frame whose payload is awaited
	frameNumber uint32      // of the next frame on this connection, modulo 2^32
	dst         []byte      // where its next bytes go; empty: ask
	discard     bool        // the payload goes nowhere
	need        int         // payload bytes still to come

	mayFault bool // dst is memory that the program may have taken back; with rmu

	checksum bool // payloads have checksums; set before the start
	// All goes by the buffer: because what is in its place may be written to by others before it is
	// summed, or because it is decrypted there; set before the start.
	buffered       bool
	sum            uint32        // of the payload so far
	checksumErrors atomic.Uint64 // frames whose checksum was wrong

	canPeek    bool // the socket can be looked at piece by piece: see settle
	peeking    bool // short messages come one by one
	peeked     int  // bytes that were worked through and are in the socket still
	peeks      int  // since the socket was emptied
	emptyPeeks int  // looks since anything came
}

// receive receives at most turns times. got says whether any frame was complete or
// any payload moved.
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

// recv is one call that takes what is there out of the socket.
func (r *receiver) recv(fd int, a, b []byte) (int, error) {
	switch {
	case !r.viaSpecial:
		return r.io.Recv(fd, a, b)
	case r.cipher != nil:
		if r.quantumOver { // what is in the socket raises an event
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

// cipherHasData says whether there is more that no event tells of.
func (r *receiver) cipherHasData() bool { return r.cipher != nil && r.cipher.HasData() }

// fill makes one receive call.
func (r *receiver) fill(fd int, h frameHandler) (n int, err error) {
	if r.peeked > 0 && (r.need > 0 || r.end > 0) { // a look has ended in the middle of a frame
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
		if r.need > bufferSize { // the next one is likely as long, and what comes into the buffer is copied twice
			over = wire.HeaderSize + maxInline
		}
		dst, behind := r.dst, r.buf[:over]
		if len(dst) > maxRecvCall {
			dst, behind = dst[:maxRecvCall], nil
		}
		n, err = r.recv(fd, dst, behind)
		if err != nil && unix.Faulted(err) { // the kernel has kept what did not fit there
			h.storeFaulted(fmt.Errorf("%w: %w", shm.ErrForbidden, err))
			r.discardRest()
			return r.fill(fd, h)
		}
		k := min(n, len(dst)) // the rest, which may be of this payload too, is in the buffer
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

// parse works through the buffer.
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

// TCP sends an acknowledgement, a packet of its own, from within the call that
// takes the second short segment out of a socket that is empty then, if nothing was
// sent the other way. That is more than half of what such a message costs
// altogether. Where short messages come one by one, a waiter therefore looks at
// them only, and leaves their bytes there; now and then, and when nothing has come for a while,
// it takes out all of them by one call, for the far end's TCP sends only so much without an acknowledgement.
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

// consumePeeked takes all that was looked at out of the socket.
func (r *receiver) consumePeeked(fd int) error {
	r.peeks, r.emptyPeeks = 0, 0
	n := r.peeked
	if n == 0 {
		return nil
	}
	k, err := r.io.Discard(fd, n)
	r.peeked -= k
	if err == nil && k < n { // they would be received once more
		err = protocol("%d of %d bytes that were there are in the socket still", n-k, n)
	}
	return err
}

// requestBuffer learns where the next bytes of the payload go.
func (r *receiver) requestBuffer(h frameHandler) {
	if len(r.dst) == 0 && !r.discard {
		r.dst = h.payloadBuffer(r.need)
		r.discard = len(r.dst) == 0
	}
}

// midFrame says whether a part of a frame is here whose rest is still to come.
func (r *receiver) midFrame() bool { return r.need > 0 || r.start < r.end }

// discardRest makes the rest of the payload under way go nowhere.
func (r *receiver) discardRest() { r.dst, r.discard = nil, true }

// dropBuffer makes the next byte's place be asked for.
func (r *receiver) dropBuffer() { r.dst = nil }

// releaseBuffer gives the buffer back unless something is in it.
func (r *receiver) releaseBuffer() {
	if r.buf != nil && r.start == r.end {
		bufferPool.Put(r.buf)
		r.buf = nil
	}
}

// reset forgets what a connection has left.
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

// expectFDs has the far end of fd send descriptors.
func (r *receiver) expectFDs(fd int) {
	if r.passedFDs != nil && !r.expectsFDs {
		r.expectsFDs = true
		unix.AwaitRights(fd)
	}
}

// refuseFDs takes no descriptors any more; fd is -1 if there is no connection.
func (r *receiver) refuseFDs(fd int) {
	if r.passedFDs == nil {
		return
	}
	if r.expectsFDs = false; fd >= 0 {
		unix.RefuseRights(fd)
	}
	foreign.Close(r.passedFDs.Rest()...)
}
