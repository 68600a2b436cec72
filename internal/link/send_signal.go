package link

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/sendbuf"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A signal is a message whose last word lies elsewhere than its data. It is two messages on every
// path, the data and the word: the order of a pair of processes keeps the word behind the data, a
// retransmission stores each of them once, and each has its own redirection. On the stream short
// ones are written by one call. docs/decisions/0014 says why it has no frame of its own.

// signalWords have the words of signals that are sent as messages of their own.
var signalWords = sync.Pool{New: func() any { return new([shm.WordSize]byte) }}

// withWord calls send with the bytes of word. An error means that data was sent and the word maybe
// not.
func withWord(word uint32, send func(b []byte) (uint64, error)) (seq uint64, err error) {
	b := signalWords.Get().(*[shm.WordSize]byte)
	shm.SetLastWord(b[:], word)
	if seq, err = send(b[:]); err != nil && !errors.Is(err, ErrUnknown) {
		err = unknown(err)
	}
	signalWords.Put(b)
	return seq, err
}

// TrySignal is to SendSignal what [Mapped.TrySend] is to Send.
func (m *Mapped) TrySignal(off int, src []byte, at int, word uint32) error {
	rq, mem, n := m.req, m.mem, len(src)
	if !m.Fast || n == 0 || n > shm.Piece || (n|off|at)%shm.WordSize != 0 || off < 0 ||
		off > len(mem)-n || rq.backlog.pending.Load() != 0 {
		return ErrSlowPath
	}
	if at < 0 || at > len(mem)-shm.WordSize || at > off-shm.WordSize && at < off+n {
		return ErrSlowPath
	}
	if seq := rq.lastSeq.Load(); seq != rq.ackedSeq.Load() || m.Ended.Load() || !m.healthy(rq) {
		return ErrSlowPath
	}
	return m.storeSignal(off, off, src, at, word)
}

// SendSignal copies src to off, and then stores word at at.
func (m *Mapped) SendSignal(ctx context.Context, off int, src []byte, at int, word uint32) error {
	if err := m.req.backlog.wait(ctx, m.Ended); err != nil {
		return err
	}
	if m.Claims != nil {
		_, err := m.sendRedirected(ctx, off, src, nil, false, false)
		if err == nil {
			_, err = withWord(word, func(b []byte) (uint64, error) {
				_, err := m.sendRedirected(ctx, at, b, nil, false, false)
				return 0, err
			})
		}
		return err
	}
	if err := m.beginAccess(ctx); err != nil {
		return err
	}
	done := (len(src) - 1) / shm.Piece * shm.Piece
	if err := m.copyLong(ctx, m.mem[off:off+done], src[:done]); err != nil {
		return err
	}
	return m.storeSignal(off, off+done, src[done:], at, word)
}

// storeSignal stores the rest of the data, which belongs at next, and the word. The data begins at
// from. The word's exchange orders it behind the data and before the loads that follow.
func (m *Mapped) storeSignal(from, next int, src []byte, at int, word uint32) error {
	n := next + len(src) - from
	if invariant.Enabled {
		m.trace("mapped signal", from, n)
	}
	shm.PutSignal(m.mem, next, src, at, word)
	if !m.healthy(m.req) {
		if err := m.check(); err != nil {
			return unknown(err)
		}
	}
	m.counters.Add2(shmlayout.Messages, 2, shmlayout.Bytes, uint64(n+shm.WordSize))
	if m.board.Count.Load() != 0 {
		m.wakeForSignal(from, n, at)
	}
	runtime.KeepAlive(m) // keeps the pages mapped until the copy is over
	return nil
}

// wakeForSignal rings if a goroutine of the exporter may sleep for the word or one of the data's.
func (m *Mapped) wakeForSignal(off, n, at int) {
	var data, word uint64
	if m.addr != 0 {
		data, word = m.addr+uint64(off), m.addr+uint64(at)
	}
	if m.board.Concerns(word, shm.WordSize) || m.board.Concerns(data, n) {
		m.req.ringBell()
	}
}

// SendSignal sends data, and then word to byte at of the same export. seq is the word's number. A
// long message is acknowledged before the word is sent: its memory may turn out to be unreadable,
// or its sender may give it up, and then the word must not arrive either.
func (rq *Requester) SendSignal(
	ctx context.Context, data Message, at uint64, word uint32,
) (seq uint64, err error) {
	size := data.Len()
	if rq.fitsOneFrame(size + wire.HeaderSize) {
		if size > maxInline { // as in Send
			if err := data.checkReadable(); err != nil {
				return 0, err
			}
		}
		if err := rq.beginSend(ctx, &data, size); err != nil {
			return 0, err
		}
		seq, err = rq.sendTwoFrames(ctx, &data, size, at, word)
		rq.sendSem.Release()
		if seq > 0 || err != nil {
			return seq, err
		}
	}
	if seq, err = rq.Send(ctx, data); err != nil {
		return seq, err
	}
	return withWord(word, func(b []byte) (uint64, error) {
		data.Off, data.Src = at, b
		return rq.Send(ctx, data)
	})
}

// sendTwoFrames writes the frames of both messages with one call, as sendOneFrame does with one.
// seq is 0 if the send buffer has no room for them. The caller holds sendSem.
func (rq *Requester) sendTwoFrames(
	ctx context.Context, m *Message, size int, at uint64, word uint32,
) (seq uint64, err error) {
	if rq.fetches.count.Load() != 0 {
		if err := rq.waitNoOverlap(ctx, m.Ended, m.ID, at, shm.WordSize); err != nil {
			return 0, err
		}
	}
	if err := rq.lockIdleQueue(ctx, m.Ended); err != nil {
		return 0, err
	}
	b := rq.tx.buf[:]
	var g *sendbuf.Segment
	if rq.reconnectLimit > 0 {
		if g = rq.unacked.reserve(2*wire.HeaderSize+size, rq.ackedSeq.Load()); g == nil {
			rq.inboxMu.Unlock()
			rq.tmu.Unlock()
			return 0, nil
		}
		b = g.Free()
	}
	first, _ := rq.assignSeq(m, size)
	seq, _ = rq.assignSeq(m, shm.WordSize)
	rq.inboxMu.Unlock()
	if rq.needsProbes {
		rq.tailProbe.schedule()
	}
	n := len(rq.tx.buildFrame(b, m, size, first, 0))
	rq.tx.putHeader(&wire.Header{Type: wire.Data, Flags: wire.Last, Handle: m.Handle, Seq: seq, Off: at, Size: shm.WordSize, Word: word}, b[n:])
	if g != nil {
		g.Add(n, first)
		g.Add(wire.HeaderSize, seq)
	}
	rq.messageFramed(first, false)
	rq.messageFramed(seq, false)
	n += wire.HeaderSize
	// the data can have arrived, and be acknowledged, while a part of the word is unwritten
	if rq.writeFrame(b[:n:n], seq) {
		if !rq.nothingQueued() { // more was queued meanwhile
			rq.pump()
		}
		rq.tmu.Unlock()
		return seq, nil
	}
	queued := rq.tx.framesQueued
	rq.tmu.Unlock()
	if err := rq.waitWritten(ctx, queued, m.Ended); err != nil {
		return seq, unknown(err)
	}
	return seq, nil
}
