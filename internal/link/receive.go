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

// longest is what one call takes out of the socket at most: for as long the collector cannot stop the thread.
const longest = 1 << 20

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// fullTurn is after how many bytes a turn is over, however many calls it may have left.
const fullTurn = 8 << 20

// receiver turns the socket's bytes into frames. Payload goes from the kernel
// straight to its place, except what came along with a header.
type receiver struct {
	io         unix.IO
	passed     *unix.Passed // nil: the far end cannot send descriptors
	awaits     bool         // descriptors
	cipher     Cipher       // nil: in clear
	special    bool         // one of these two is there
	over       bool         // the turns are, and what the cipher keeps goes on
	buf        *[bufferSize]byte
	start, end int         // unread part of buf
	hdr        wire.Header // the frame whose payload is awaited
	number     uint32      // of the next frame on this connection, modulo 2^32
	dst        []byte      // where its next bytes go; empty: ask
	waste      bool        // the payload goes nowhere
	need       int         // payload bytes still to come

	careful bool // dst is memory that the program may have taken back; with rmu

	check bool // payloads have checksums; set before the start
	// All goes by the buffer: because what is in its place may be written to by others before it is
	// summed, or because it is decrypted there; set before the start.
	buffered bool
	sum      uint32        // of the payload so far
	wrong    atomic.Uint64 // frames whose checksum was wrong

	quiet  bool // the socket can be looked at piece by piece: see settle
	quick  bool // short messages come one by one
	peeked int  // bytes that were worked through and are in the socket still
	looks  int  // since the socket was emptied
	vain   int  // looks since anything came
}

// take receives at most turns times. got says whether any frame was complete or
// any payload moved.
func (r *receiver) take(s *stream, turns int) (got bool, err error) {
	if s.fd < 0 {
		return false, nil
	}
	if r.buf == nil {
		r.buf = buffers.Get().(*[bufferSize]byte)
	}
	r.quick = r.quick && turns == 1
	if r.peeked > 0 {
		if err := r.settle(s.fd); err != nil {
			return false, err
		}
	}
	brought := 0
	for i := 0; i < turns && brought < fullTurn || r.kept(); i++ {
		if i == 1 && turns > 1 && s.awaited() {
			turns = 1
			if !r.kept() {
				break
			}
		}
		r.over = i >= turns
		n, rerr := r.fill(s.fd, s.h)
		if rerr != nil {
			if err = rerr; errors.Is(err, wire.ErrCorrupt) {
				r.wrong.Add(1)
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
				r.wrong.Add(1)
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
	case !r.special:
		return r.io.Recv(fd, a, b)
	case r.cipher != nil:
		if r.over { // what is in the socket raises an event
			fd = -1
		}
		return r.cipher.Recv(fd, a)
	}
	n, err := r.io.RecvPassed(fd, a, b, r.passed)
	if most := maxSeeks; r.passed.Len() > 0 && (!r.awaits || r.passed.Len() > most) {
		err = protocol("%d descriptors that are not awaited", r.passed.Len())
	}
	return n, err
}

// kept says whether there is more that no event tells of.
func (r *receiver) kept() bool { return r.cipher != nil && r.cipher.Kept() }

// fill makes one receive call.
func (r *receiver) fill(fd int, h handler) (n int, err error) {
	if r.peeked > 0 && (r.need > 0 || r.end > 0) { // a look has ended in the middle of a frame
		if err := r.empty(fd); err != nil {
			return 0, err
		}
	}
	if r.need > 0 { // then the buffer is empty
		r.ask(h)
		if r.waste && !r.buffered {
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
			over = wire.HeaderSize + small
		}
		dst, behind := r.dst, r.buf[:over]
		if len(dst) > longest {
			dst, behind = dst[:longest], nil
		}
		n, err = r.recv(fd, dst, behind)
		if err != nil && unix.Faulted(err) { // the kernel has kept what did not fit there
			h.unwritable(fmt.Errorf("%w: %w", shm.ErrForbidden, err))
			r.divert()
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
	if r.quick && r.end == 0 {
		n, err = r.io.Peek(fd, r.buf[:])
		if n > 0 {
			r.peeked, r.vain = r.peeked+n, 0
			r.looks++
		}
		r.end = n
		return n, err
	}
	n, err = r.recv(fd, r.buf[r.end:], nil)
	r.end += n
	r.quick = r.quiet && n > 0 && n <= wire.HeaderSize+small
	return n, err
}

// parse works through the buffer.
func (r *receiver) parse(h handler) error {
	for {
		for r.need > 0 && r.start < r.end {
			r.ask(h)
			k := min(r.need, r.end-r.start)
			if !r.waste {
				k = min(k, len(r.dst))
			}
			if r.check {
				r.sum = wire.Sum(r.sum, r.buf[r.start:r.start+k])
			}
			switch {
			case r.waste:
			case !r.careful:
				shm.Deposit(r.dst, r.buf[r.start:r.start+k])
				r.dst = r.dst[k:]
			default:
				if err := shm.TryDeposit(r.dst[:k], r.buf[r.start:r.start+k]); err != nil {
					h.unwritable(err)
					r.divert()
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
			if r.check && r.sum != r.hdr.Sum {
				return r.hdr.Corrupt(r.sum)
			}
			if err := h.placed(&r.hdr); err != nil {
				return err
			}
			r.hdr.Type, r.dst = 0, nil
		}
		r.waste = false
		if r.end-r.start < wire.HeaderSize {
			return nil
		}
		if err := r.hdr.Parse(r.buf[r.start:r.end], r.number); err != nil {
			return err
		}
		r.number++
		r.start += wire.HeaderSize
		r.sum = 0
		r.need = int(r.hdr.Chunk)
		if !r.hdr.Known() || r.hdr.Type == wire.Pad {
			r.hdr.Type, r.waste = 0, true
			continue
		}
		if err := h.frame(&r.hdr); err != nil {
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
	mostKept = 8
	mostVain = 32
)

// settle empties the socket if it is time to.
func (r *receiver) settle(fd int) error {
	r.vain++
	if r.quick && r.looks < mostKept && r.vain < mostVain {
		return nil
	}
	return r.empty(fd)
}

// empty takes all that was looked at out of the socket.
func (r *receiver) empty(fd int) error {
	r.looks, r.vain = 0, 0
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

// ask learns where the next bytes of the payload go.
func (r *receiver) ask(h handler) {
	if len(r.dst) == 0 && !r.waste {
		r.dst = h.place(r.need)
		r.waste = len(r.dst) == 0
	}
}

// begun says whether a part of a frame is here whose rest is still to come.
func (r *receiver) begun() bool { return r.need > 0 || r.start < r.end }

// divert makes the rest of the payload under way go nowhere.
func (r *receiver) divert() { r.dst, r.waste = nil, true }

// reconsider makes the next byte's place be asked for.
func (r *receiver) reconsider() { r.dst = nil }

// spare gives the buffer back unless something is in it.
func (r *receiver) spare() {
	if r.buf != nil && r.start == r.end {
		buffers.Put(r.buf)
		r.buf = nil
	}
}

// restart forgets what a connection has left.
func (r *receiver) restart() {
	if r.buf != nil {
		buffers.Put(r.buf)
	}
	r.buf, r.dst, r.hdr.Type = nil, nil, 0
	r.start, r.end, r.need, r.waste, r.number = 0, 0, 0, false, 0
	r.quick, r.peeked, r.looks, r.vain = false, 0, 0, 0
	r.cipher, r.special = nil, r.passed != nil
}

func (r *receiver) drop() {
	if r.buf != nil {
		buffers.Put(r.buf)
		r.buf = nil
	}
	r.dst = nil
	r.cipher = nil // the transmitter drops it
	r.refuse(-1)
}

// await has the far end of fd send descriptors.
func (r *receiver) await(fd int) {
	if r.passed != nil && !r.awaits {
		r.awaits = true
		unix.AwaitRights(fd)
	}
}

// refuse takes no descriptors any more; fd is -1 if there is no connection.
func (r *receiver) refuse(fd int) {
	if r.passed == nil {
		return
	}
	if r.awaits = false; fd >= 0 {
		unix.RefuseRights(fd)
	}
	foreign.Close(r.passed.Rest()...)
}
