package vmmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Send writes src into the buffer at byte offset off (vmmc_SendData). len(src)
// and off are multiples of the word; src may lie anywhere, that
// of a message over 256 KiB not where it goes to. Send returns when src
// may be reused: on the mapped way the data has arrived then, on the stream way
// it is on its way, and a message over 64 KiB has arrived. The last word of a
// message is stored last. A send allocates nothing. The context is looked at
// only before Send has to wait, and between the pieces of a long one.
//
// src must be readable. Memory that is not (unmapped, protected, cut off) is [ErrBadArg] where the
// library can find that out: on the stream way, in messages of more than 448 bytes. A message on
// the mapped way, and a shorter one on the stream way, is copied by the calling goroutine: that
// faults, as the program's own load would, and ends the program.
//
// Errors: [ErrBadSize], [ErrBadAlignment], [ErrBadProxyAddr] (the range is not
// within the buffer), [ErrNoRights], [ErrRevoked], [ErrPeerGone], [ErrClosed],
// [ErrTimeout], [ErrCanceled]. An error that is also [ErrOutcomeUnknown] leaves open how much
// has arrived; otherwise nothing was written.
func (im *Import) Send(ctx context.Context, src []byte, off int) error {
	if ctx == nil {
		return im.opError("send", len(src), off, errNilContext)
	}
	if im.mapped != nil {
		im.mapped.Prefetch(off)
		if err := im.mapped.TrySend(off, src); err == nil {
			return nil
		} else if err != link.ErrSlowPath { //nolint:errorlint // nothing wraps it
			return im.opError("send", len(src), off, err)
		}
	}
	return im.sendSlow(ctx, src, off)
}

// sendSlow is Send without the fast path.
func (im *Import) sendSlow(ctx context.Context, src []byte, off int) error {
	err := im.check(len(src), off, nodeproto.MayWrite)
	switch {
	case err != nil:
	case im.mapped != nil:
		err = im.mapped.Send(ctx, off, src)
	default:
		err = im.sendStream(ctx, link.Message{Off: uint64(off), Src: src})
	}
	if err != nil {
		return im.opError("send", len(src), off, err)
	}
	return nil
}

// SendNotify is Send with a notification: when the data is in place, the export's handler is run
// with the address and value of the message's last word (vmmc_SendDataNotify). Without a handler it
// is a Send: it takes no credit and does not wait for one. Each link has a bounded number of
// notifications under way; SendNotify waits, before it sends anything, for an earlier one's handler
// to return, or for its context. In a notification handler it does not wait but fails with
// [ErrNoCredit]; nothing was sent then. Of memory that cannot be read, and of other errors, what
// [Import.Send] says holds.
func (im *Import) SendNotify(ctx context.Context, src []byte, off int) error {
	if ctx == nil {
		return im.opError("send with notification", len(src), off, errNilContext)
	}
	if im.mapped != nil {
		if err := im.mapped.TrySendNotify(off, src); err == nil {
			return nil
		} else if err != link.ErrSlowPath { //nolint:errorlint // nothing wraps it
			return im.opError("send with notification", len(src), off, err)
		}
	}
	return im.sendNotifySlow(ctx, src, off)
}

// sendNotifySlow is SendNotify without the fast path.
func (im *Import) sendNotifySlow(ctx context.Context, src []byte, off int) error {
	err := im.check(len(src), off, nodeproto.MayWrite)
	switch {
	case err != nil:
	case im.mapped != nil && im.notifiable():
		err = im.mapped.SendNotify(ctx, off, src)
	case im.mapped != nil:
		err = im.mapped.Send(ctx, off, src)
	default:
		err = im.sendStream(ctx, link.Message{Off: uint64(off), Src: src, Notify: im.notifiable()})
	}
	if err != nil {
		return im.opError("send with notification", len(src), off, err)
	}
	return nil
}

// SendV is Send of several pieces as one message: they lie one after another at
// byte offset off, each a multiple of the word, and the last word of the last
// piece is stored last. Pieces may be empty, but not all. It allocates nothing, but for a
// mapped buffer that is redirectable. Of memory that cannot be read, and of
// errors, what [Import.Send] says holds.
func (im *Import) SendV(ctx context.Context, srcs [][]byte, off int) error {
	n, odd, last := 0, 0, -1
	for i, b := range srcs {
		n, odd = n+len(b), odd|len(b)
		if len(b) > 0 {
			last = i
		}
	}
	err := im.check(n, off, nodeproto.MayWrite)
	switch {
	case ctx == nil:
		err = errNilContext
	case err != nil:
	case odd%shm.WordSize != 0:
		err = code.BadAlignment
	case im.mapped != nil:
		err = im.mapped.Send(ctx, off, srcs[0], srcs[1:last+1]...)
	case n <= link.Eager:
		// One frame and one copy are cheaper than a frame for each piece.
		b := eagerBuffers.Get().(*[link.Eager]byte)
		err = shm.Guard(func() { // as in one piece
			at := 0
			for _, s := range srcs {
				at += copy(b[at:], s)
			}
		})
		if err == nil {
			err = im.sendStream(ctx, link.Message{Off: uint64(off), Src: b[:n]})
		}
		eagerBuffers.Put(b)
	default:
		v := vectors.Get().(*[][]byte) // not srcs, which would then be no caller's local variable
		*v = append(*v, srcs[:last+1]...)
		err = im.sendStream(ctx, link.Message{Off: uint64(off), Src: (*v)[0], More: (*v)[1:]})
		clear(*v)
		*v = (*v)[:0]
		vectors.Put(v)
	}
	if err != nil {
		return im.opError("send", n, off, err)
	}
	return nil
}

var (
	eagerBuffers = sync.Pool{New: func() any { return new([link.Eager]byte) }}
	vectors      = sync.Pool{New: func() any { return new([][]byte) }}
)

// SendSignal is Send of src to byte offset off, and then of word to byte offset wordOff of the same
// buffer, outside of src's range. A goroutine of the exporter that finds word there finds all of
// src in place: one flag, or one number, can stand for data of any place and length. If the call
// fails, the word is there only if all of src is. In counters, and for redirection, the data and
// the word are two messages. A short signal is one write to a socket; one over 64 KiB on the stream
// takes a round trip before its word is sent. SendSignal allocates nothing. Errors as
// [Import.Send], and [ErrBadArg] if the word lies within the data's range.
//
// Experimental: it may change in any release.
func (im *Import) SendSignal(
	ctx context.Context, src []byte, off int, word uint32, wordOff int,
) error {
	if ctx == nil {
		return im.opError("send signal", len(src), off, errNilContext)
	}
	if im.mapped != nil {
		if err := im.mapped.TrySignal(off, src, wordOff, word); err == nil {
			return nil
		} else if err != link.ErrSlowPath { //nolint:errorlint // nothing wraps it
			return im.opError("send signal", len(src), off, err)
		}
	}
	return im.sendSignalSlow(ctx, src, off, word, wordOff)
}

// sendSignalSlow is SendSignal without the fast path.
func (im *Import) sendSignalSlow(
	ctx context.Context, src []byte, off int, word uint32, wordOff int,
) error {
	err := im.check(len(src), off, nodeproto.MayWrite)
	if err == nil {
		err = im.check(shm.WordSize, wordOff, nodeproto.MayWrite)
	}
	switch {
	case err != nil:
	case wordOff >= off && wordOff < off+len(src):
		err = code.BadArg
	case im.mapped != nil:
		err = im.mapped.SendSignal(ctx, off, src, wordOff, word)
	default:
		m := link.Message{Off: uint64(off), Src: src}
		im.setTarget(&m)
		var seq uint64
		seq, err = im.link.requester.SendSignal(ctx, m, uint64(wordOff), word)
		if err == nil && len(src) > link.Eager {
			err = im.checkDelivered(seq)
		}
	}
	if err != nil {
		return im.opError("send signal", len(src), off, err)
	}
	return nil
}

// sendStream sends over the stream. An acknowledged message to an export that was closed meanwhile
// was discarded; the exporter sends the revocation before that acknowledgement.
func (im *Import) sendStream(ctx context.Context, m link.Message) error {
	im.setTarget(&m)
	seq, err := im.link.requester.Send(ctx, m)
	if err != nil {
		return im.attributeError(err)
	}
	if m.NoAckWait || m.Len() <= link.Eager {
		return nil
	}
	return im.checkDelivered(seq)
}

// setTarget addresses m to the import.
func (im *Import) setTarget(m *link.Message) {
	m.Handle, m.ID, m.Ended, m.Closed, m.Done = im.handle, im.id, &im.ended, &im.closed, im.done
}

// checkDelivered returns an error if the acknowledged message seq came after the export's end.
func (im *Import) checkDelivered(seq uint64) error {
	if err := im.checkAlive(); err != nil && seq > im.lastDelivered.Load() {
		return fmt.Errorf("%w (%w)", err, code.OutcomeUnknown)
	}
	return nil
}

// attributeError replaces an error that the import's end caused by the cause of that end, the same
// one for every call. An exporter refuses a message after Export.Close with "no such export"; the
// revocation with the cause has arrived before. A mapped import whose pages say that the export has
// ended keeps ErrRevoked.
func (im *Import) attributeError(err error) error {
	cause := im.checkAlive()
	revoked := errors.Is(err, link.ErrRevoked)
	switch {
	case cause == nil || revoked && im.mapped != nil || !revoked && !errors.Is(err, link.ErrEnded):
		return err
	case errors.Is(err, link.ErrUnknown):
		return fmt.Errorf("%w (%w)", cause, code.OutcomeUnknown)
	}
	return cause
}

// Get reads len(dst) bytes of the buffer from byte offset off (vmmc_GetData),
// the last word first: so a reader that finds a flag there also finds what was stored before it.
// len(dst) and off are multiples of the word. When Get fails, dst holds anything.
// It allocates nothing. Errors as [Import.Send].
func (im *Import) Get(ctx context.Context, dst []byte, off int) error {
	if ctx == nil {
		return im.opError("get", len(dst), off, errNilContext)
	}
	err := im.check(len(dst), off, nodeproto.MayRead)
	if err == nil {
		err = im.get(ctx, dst, off, false)
	}
	if err != nil {
		return im.opError("get", len(dst), off, err)
	}
	return nil
}

func (im *Import) get(ctx context.Context, dst []byte, off int, raw bool) error {
	if im.mapped != nil {
		return im.mapped.Get(ctx, off, dst, raw)
	}
	return im.attributeError(im.link.requester.Get(ctx, im.readRequest(dst, off, raw)))
}

func (im *Import) readRequest(dst []byte, off int, raw bool) link.Read {
	return link.Read{Handle: im.handle, ID: im.id, Off: uint64(off), Dst: dst, Bytes: raw, Ended: &im.ended, Done: im.done}
}

// Fence returns when all that this process sent to the import's exporter before
// has arrived there: what was sent is visible to the exporter's goroutines and
// to gets of third parties. The errors are the context's, and those that say that
// the import has ended: [ErrRevoked], [ErrPeerGone], [ErrClosed].
func (im *Import) Fence(ctx context.Context) error {
	if ctx == nil {
		return im.opError("fence", 0, 0, errNilContext)
	}
	err := im.checkAlive()
	if err == nil {
		if err = im.link.requester.WaitApplied(ctx, &im.closed); err == nil {
			err = im.checkApplied()
		}
	}
	if err != nil {
		return im.opError("fence", 0, 0, err)
	}
	return nil
}

// checkApplied returns why messages that the exporter's process has applied went nowhere, or why
// the exporter is gone.
func (im *Import) checkApplied() error {
	err := im.checkAlive() // messages after the export's end were discarded
	if err == nil {
		err = im.link.requester.Err() // all has arrived, but a dead peer must be reported
	}
	if err == nil && im.mapped != nil {
		err = im.mapped.Alive()
	}
	return err
}

// WriteAt writes any number of bytes at any offset ([io.WriterAt]). It makes no
// promise about the order in which they appear, the last ones included; bytes of
// a word that are not written are left alone. It does not wait for the far end,
// except as Send does. Errors as [Import.Send], without those about alignment and
// size; no bytes are not an error.
//
// Offsets in memory are of type int, as those of slices are. Only WriteAt and ReadAt have int64,
// because io.WriterAt and io.ReaderAt do.
func (im *Import) WriteAt(b []byte, off int64) (int, error) {
	return im.WriteAtContext(context.Background(), b, clampOffset(off))
}

// WriteAtContext is WriteAt that ends with the context.
func (im *Import) WriteAtContext(ctx context.Context, b []byte, off int) (int, error) {
	if ctx == nil {
		return 0, im.opError("write", len(b), off, errNilContext)
	}
	err := im.checkBytes(len(b), off, nodeproto.MayWrite)
	switch {
	case err != nil:
	case len(b) == 0:
		return 0, nil
	case im.mapped != nil:
		err = im.mapped.Write(ctx, off, b)
	default:
		err = im.sendStream(ctx, link.Message{Off: uint64(off), Src: b, Bytes: true})
	}
	if err != nil {
		return 0, im.opError("write", len(b), off, err)
	}
	return len(b), nil
}

// ReadAt reads any number of bytes from any offset ([io.ReaderAt]), with no
// promise about the order in which they are read. At the buffer's end it returns
// what there is, and [io.EOF]. Other errors as [Import.WriteAt].
func (im *Import) ReadAt(b []byte, off int64) (int, error) {
	return im.ReadAtContext(context.Background(), b, clampOffset(off))
}

// ReadAtContext is ReadAt that ends with the context.
func (im *Import) ReadAtContext(ctx context.Context, b []byte, off int) (int, error) {
	if ctx == nil {
		return 0, im.opError("read", len(b), off, errNilContext)
	}
	err := im.checkAlive()
	if err == nil && off >= 0 && off <= im.size && len(b) > im.size-off {
		return im.readToEnd(ctx, b, off)
	}
	if err == nil {
		err = im.checkBytes(len(b), off, nodeproto.MayRead)
	}
	if err == nil && len(b) > 0 {
		err = im.get(ctx, b, off, true)
	}
	if err != nil {
		return 0, im.opError("read", len(b), off, err)
	}
	return len(b), nil
}

// clampOffset makes an int of an offset. What an int cannot hold is outside of every buffer.
func clampOffset(off int64) int { return int(max(math.MinInt, min(off, math.MaxInt))) }

// check validates range, alignment and rights before a transfer.
func (im *Import) check(n, off int, need nodeproto.Rights) error {
	if uint(off) > uint(im.size) || uint(n) > uint(im.size)-uint(off) {
		return code.BadProxyAddr
	}
	if (n|off)%shm.WordSize != 0 {
		return code.BadAlignment
	}
	if n == 0 {
		return code.BadSize
	}
	if im.rights&need == 0 {
		return code.NoRights
	}
	return im.checkAlive()
}

func (im *Import) checkBytes(n, off int, need nodeproto.Rights) error {
	if off < 0 || off > im.size || n > im.size-off {
		return code.BadProxyAddr
	}
	if im.rights&need == 0 {
		return code.NoRights
	}
	return im.checkAlive()
}

func (im *Import) checkAlive() error {
	if im.ended.Load() {
		return *im.cause.Load()
	}
	return nil
}

// readToEnd is ReadAt across the buffer's end: it returns what there is, and io.EOF.
func (im *Import) readToEnd(ctx context.Context, b []byte, off int) (int, error) {
	n, err := im.ReadAtContext(ctx, b[:im.size-off], off)
	if err == nil {
		err = io.EOF
	}
	return n, err
}
