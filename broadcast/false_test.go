package broadcast_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
)

// A writer that breaks the protocol gets its readers an error, and nothing that it could not have
// appended.
func TestFalseWriter(t *testing.T) {
	const at = 1 << 20
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			r := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest)
			ring := log.Log()[broadcast.LogHeader:]
			for about, f := range map[string]func(){
				"no entry": func() { broadcast.StoreBounds(log.Log(), at, at+8) },
				"an entry that ends behind the log": func() {
					broadcast.PutHeader(ring, at, 8)
					broadcast.StoreBounds(log.Log(), at, at+12)
				},
				"an entry that is too long": func() {
					broadcast.PutHeader(ring, at, ringSize/8-7)
					broadcast.StoreBounds(log.Log(), at, at+ringSize)
				},
				"an entry of 4 GiB": func() {
					broadcast.PutHeader(ring, at, 1<<32-1)
					broadcast.StoreBounds(log.Log(), at, at+ringSize)
				},
				"less than a header":         func() { broadcast.StoreBounds(log.Log(), at, at+4) },
				"a log longer than its ring": func() { broadcast.StoreBounds(log.Log(), at, at+ringSize+4) },
				"a log that ends never":      func() { broadcast.StoreBounds(log.Log(), at, 1<<64-4) },
				"an odd end":                 func() { broadcast.StoreBounds(log.Log(), at, at+6) },
				"an odd beginning":           func() { broadcast.StoreBounds(log.Log(), at+2, at+16) },
			} {
				clear(ring)
				f()
				r.Reset(at, true)
				if b, pos, err := r.Next(within(t), nil); !errors.Is(err, vmmc.ErrProtocol) {
					t.Errorf("%s: %d bytes at %d, %v", about, len(b), pos, err)
				}
				r.Reset(at, false)
				if _, _, err := r.Next(within(t), nil); !errors.Is(err, vmmc.ErrProtocol) && !errors.Is(err, vmmc.ErrBadArg) {
					t.Errorf("%s, and a position that may be wrong: %v", about, err)
				}
			}
			// Going back is no end, and nothing to read.
			broadcast.StoreBounds(log.Log(), at, at-4096)
			r.Reset(at, true)
			if _, _, err := r.Next(ended(), nil); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a log that goes back: %v", err)
			}
		})
	}
}

// FuzzFalseWriter has a reader read what a writer could store: in the log, and in what it pushes. No
// call hangs or panics, no entry is longer than the ring allows, and the reader goes only forwards.
func FuzzFalseWriter(f *testing.F) {
	nodes, log := ways[0].start(f, ringSize)
	r, err := broadcast.NewReader(within(f), nodes[0].Open(f), name, broadcast.Oldest)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { r.Close() })
	ring, own := log.Log()[broadcast.LogHeader:], r.Own().Bytes()
	good := make([]byte, 200)
	broadcast.PutHeader(good, 4096, 5)
	broadcast.PutHeader(good[16:], 4112, 100)
	f.Add(uint64(4096), uint64(4096), uint64(4096+16+108), true, good, []byte{})
	f.Add(uint64(0), uint64(4096), uint64(4096+16+108), true, good, []byte{})
	f.Add(uint64(4096), uint64(4096), uint64(4097+16+108), false, good, good)
	f.Add(uint64(1<<64-8), uint64(0), uint64(1<<64-4), false, good[4:], good[:16])
	f.Add(uint64(8000), uint64(4096), uint64(8000+12), true, good[16:], []byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, pos, first, tail uint64, sure bool, entries, pushed []byte) {
		clear(ring)
		at := int(pos % ringSize)
		n := copy(ring[at:], entries)
		copy(ring, entries[n:])
		broadcast.StoreBounds(log.Log(), first, tail)
		push := own[broadcast.PushOff : len(own)-16]
		n = min(len(pushed), len(push))
		copy(push[len(push)-n:], pushed)
		trailer := own[len(own)-16:]
		binary.NativeEndian.PutUint64(trailer, pos)
		binary.NativeEndian.PutUint32(trailer[8:], uint32(len(pushed)))
		r.Reset(pos&^3, sure)
		for range 1000 {
			was := r.Pos()
			b, at, err := r.Next(ended(), nil)
			var over *broadcast.Overrun
			switch {
			case errors.As(err, &over):
				if r.Pos() != was+over.Lost {
					t.Fatalf("a loss of %d bytes from %d to %d", over.Lost, was, r.Pos())
				}
			case err != nil:
				if r.Pos() != was || b != nil {
					t.Fatalf("%v: from %d to %d, %d bytes", err, was, r.Pos(), len(b))
				}
				return
			case at != was || r.Pos() <= was || len(b) > log.MaxEntry():
				t.Fatalf("%d bytes at %d, from %d to %d", len(b), at, was, r.Pos())
			}
		}
	})
}
