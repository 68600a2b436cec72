package vmmc_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// FuzzHostileResume has a process on another node dial its own link again and again, with its
// key and with anything else in its hellos, and say anything on the connections that it has:
// the input is made into hellos that are proved and frames whose checksums are right.
func FuzzHostileResume(f *testing.F) {
	near, far := nodes(f, "between nodes")
	a, b := join(f, near), join(f, far)
	const size = 4096
	m, err := b.Alloc(3 * size)
	if err != nil {
		f.Fatal(err)
	}
	mine, others := m.Bytes()[size:2*size], m.Bytes() // beside what it may write is what it may not
	if _, err := b.Export(7, mine); err != nil {
		f.Fatal(err)
	}
	theirs, err := b.Alloc(size)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := b.Export(8, theirs.Bytes()); err != nil {
		f.Fatal(err)
	}
	im, err := a.Import(f.Context(), b.Node(), b.PID(), 8)
	if err != nil {
		f.Fatal(err)
	}
	// Dials, frames, and frames on a connection that was given up.
	f.Add([]byte{0, 1, 0, 0, 1, 1, 1, 8, 0, 4, 0, 2, 1, 0, 1, 1, 1, 8, 0, 4, 1, 2, 1, 8, 0, 4, 0, 9, 9, 9})
	f.Add([]byte{0, 1, 0, 0, 1, 4, 1, 8, 0, 4, 0, 1, 0, 0, 0, 3, 200, 3})
	runs := 0
	f.Fuzz(func(t *testing.T, in []byte) {
		if runs++; runs%500 == 0 {
			testutil.Bounded(t, 500, 500, 128<<20)
		}
		r := newRobber(t, near, rand.Uint64(), b, 7)
		defer r.Close()
		var conns []net.Conn
		var said []numbers
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for len(in) >= 4 && len(conns) < 16 {
			op := in[0]
			if op%4 == 0 || len(conns) == 0 {
				h := wire.Hello{Link: r.Link, Attempt: uint64(in[1]), Applied: uint64(in[2]), Notices: uint32(in[3])}
				if op < 128 {
					h.Capabilities |= wire.Resumes
				}
				if op&64 != 0 {
					h.Capabilities |= wire.Checked
				}
				in = in[4:]
				conns = append(conns, r.hello(t, h))
				continue
			}
			if len(in) < 11 {
				break
			}
			h := wire.Header{
				Type: wire.Type(in[1] % 18), Flags: in[2], Handle: r.grant.Handle + uint32(in[3]&7)/7, Seq: uint64(in[4]),
				Off: uint64(in[5]) << (in[6] & 15), Size: uint64(in[7]) << (in[8] & 15), Chunk: uint32(in[9]) << (in[10] & 7),
				Word: uint32(op), Serial: uint32(op >> 4), Ack: uint64(in[4] >> 2),
			}
			in = in[11:]
			n := min(int(h.Chunk), len(in))
			i := len(conns) - 1
			if op%4 == 3 { // one that it has left
				i = 0
			}
			c := conns[i]
			if len(said) <= i {
				said = append(said, make([]numbers, i+1-len(said))...)
			}
			_ = c.SetWriteDeadline(time.Now().Add(bound))
			_, _ = c.Write(said[i].in(frame(h, in[:n]))) // it may have been cut off
			in = in[n:]
		}
		word := w32(rand.Uint32())
		if err := im.Send(t.Context(), word, 4); err != nil {
			t.Fatalf("the traffic of others was disturbed: %v", err)
		}
		got := make([]byte, 4)
		if err := im.Get(t.Context(), got, 4); err != nil || !bytes.Equal(got, word) {
			t.Fatalf("the traffic of others was disturbed: %v", err)
		}
		if n := bytes.Count(others[:size], []byte{0}) + bytes.Count(others[2*size:], []byte{0}); n != 2*size {
			t.Fatalf("%d bytes outside of the export have changed", 2*size-n)
		}
		if n := bytes.Count(theirs.Bytes()[8:], []byte{0}); n != size-8 {
			t.Fatalf("%d bytes of another export have changed", size-8-n)
		}
	})
}

// hello says one and proves it.
func (r *robber) hello(t *testing.T, h wire.Hello) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(bound))
	h.MinVersion, h.MaxVersion, h.Nonce = wire.MinVersion, wire.MaxVersion, wire.NewNonce()
	raw := h.Encode()
	_, _ = c.Write(raw)
	b := make([]byte, max(wire.ChallengeSize, wire.AnswerSize))
	if _, err := io.ReadFull(c, b[:wire.ChallengeSize]); err != nil {
		t.Fatalf("no challenge: %v", err)
	}
	p := wire.Prove(r.Key, wire.Importer, raw, b[:wire.ChallengeSize], nil)
	_, _ = c.Write(p[:])
	if _, err := io.ReadFull(c, b[:wire.AnswerSize]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a hello that was proved has neither an answer nor an end: %v", err)
	}
	return c
}
