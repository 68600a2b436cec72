package link

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// However the bytes of messages come, and whether a waiter that peeks at them piece by piece or the
// background goroutine receives them, they arrive as they were sent.
func TestMessagesInPieces(t *testing.T) {
	const size = 64 << 10
	mem := memory(t, size)
	rapid.Check(t, func(rt *rapid.T) {
		e, _ := engine(t)
		defer e.Close()
		near, far := tcpPair(t)
		rs, err := NewResponder(e, near, nil, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true}}, nil, func(uint32) {}, func(error) {})
		if err != nil {
			rt.Fatal(err)
		}
		clear(mem)
		want := make([]byte, size)
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		var io unix.IO
		write := func(b []byte) {
			for len(b) > 0 {
				n, err := io.Send(far, b, nil)
				if err != nil {
					rt.Fatal(err, rs.err())
				}
				b = b[n:]
			}
		}
		var out []byte // not written yet
		seq, frames := uint64(0), uint32(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1: // a short message
				n := 4 * rapid.IntRange(1, 130).Draw(rt, "words")
				out = append(out, inFrames(&seq, &frames, want, rapid.IntRange(0, size/4-n/4).Draw(rt, "at")*4, n, n, byte(seq))...)
			case 2: // a long one
				n := 4 * rapid.IntRange(1, size/4).Draw(rt, "words")
				out = append(out, inFrames(&seq, &frames, want, rapid.IntRange(0, size/4-n/4).Draw(rt, "at")*4, n, 4*rapid.IntRange(1, 1<<13).Draw(rt, "chunk"), byte(seq))...)
			case 3: // all that there is
				write(out)
				out = nil
			case 4: // some of it
				n := rapid.IntRange(0, min(len(out), 3*wire.HeaderSize)).Draw(rt, "bytes")
				write(out[:n])
				out = out[n:]
			case 5: // nothing, at length
				h := wire.Header{Type: wire.Pad, Chunk: uint32(rapid.IntRange(0, 2*len(padding)).Draw(rt, "padding"))}
				out = append(out, make([]byte, wire.HeaderSize+int(h.Chunk))...)
				h.Put(out[len(out)-wire.HeaderSize-int(h.Chunk):], frames)
				frames++
			case 6: // a waiter polls for a time
				looks, end := 0, rapid.IntRange(1, 200).Draw(rt, "looks")
				e.markHot(&rs.stream)
				short, stop := context.WithTimeout(ctx, time.Millisecond)
				err := e.Wait(short, wait.Cond{Until: func() bool { looks++; return looks >= end }})
				stop()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					rt.Fatal(err)
				}
			}
		}
		write(out)
		if err := e.Wait(ctx, wait.Cond{Until: func() bool { return rs.appliedSeq.Load() == seq }, Failed: &rs.failed}); err != nil || rs.err() != nil {
			rt.Fatalf("%d of %d messages have arrived: %v, %v", rs.appliedSeq.Load(), seq, err, rs.err())
		}
		rs.rmu.Lock()
		defer rs.rmu.Unlock()
		if !bytes.Equal(mem, want) {
			rt.Fatal("the memory has something else than was sent")
		}
	})
}

// inFrames is the next message, of n times value at an offset, in chunks.
func inFrames(seq *uint64, number *uint32, want []byte, at, n, chunk int, value byte) (frames []byte) {
	*seq++
	msg := bytes.Repeat([]byte{value}, n)
	copy(want[at:], msg)
	for off := 0; off < n; off += chunk {
		pay := msg[off:min(n, off+chunk)]
		h := wire.Header{Type: wire.Data, Handle: 1, Seq: *seq, Off: uint64(at + off), Size: uint64(n)}
		if off+len(pay) == n {
			h.Flags, h.Word = wire.Last, lastWord(pay)
			pay = pay[:len(pay)-4]
		}
		h.Chunk = uint32(len(pay))
		b := make([]byte, wire.HeaderSize)
		h.Put(b, *number)
		*number++
		frames = append(append(frames, b...), pay...)
	}
	return frames
}
