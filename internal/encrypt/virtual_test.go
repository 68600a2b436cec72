package encrypt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/simnet"
)

// handshakeTime is how long a test gives handshakes, and then again what is sent after them.
const handshakeTime = 10 * time.Second

// Whatever a network does to a handshake and to what follows, both sides end in time, and no
// byte is given that was not sent there. Time is virtual, so no wait of a test is too short.
func TestHandshakeOverAnyNetwork(t *testing.T) {
	a, b := identity(t), identity(t)
	var unharmed, late, failed int
	rapid.Check(t, func(rt *rapid.T) {
		there, back := drawnFaults(rt, "there"), drawnFaults(rt, "back")
		text := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(rt, "text")
		if rapid.IntRange(0, 3).Draw(rt, "long") > 0 {
			text = bytes.Repeat(text, 1+30_000/len(text))
		}
		rapid.SyncTest(rt, func(rt *rapid.T) {
			x, y, c := simnet.Pipe(there, back)
			near, far := &shaking{own: a, peer: b, client: true}, &shaking{own: b, peer: a}
			began := time.Now()
			var both sync.WaitGroup
			both.Go(func() { near.run(rt.Context(), x, text) })
			both.Go(func() { far.run(rt.Context(), y, text) })
			both.Wait()
			c.Close()
			if took := time.Since(began); took > 2*handshakeTime {
				rt.Errorf("it took %v", took)
			}
			for name, s := range map[string]*shaking{"client": near, "server": far} {
				if s.shaken > handshakeTime {
					rt.Errorf("the %s's handshake took %v", name, s.shaken)
				}
				if !bytes.HasPrefix(text, s.got) {
					rt.Errorf("the %s was given bytes that were not sent", name)
				}
				if whole := len(s.got) == len(text); whole != (s.err == nil) {
					rt.Errorf("the %s was given %d of %d bytes, and says %v", name, len(s.got), len(text), s.err)
				}
			}
			switch {
			case near.err == nil && far.err == nil:
				unharmed++
				if !bytes.Equal(near.Binding(), far.Binding()) {
					rt.Error("the two sides have other secrets of one connection")
				}
			case near.Conn == nil || far.Conn == nil:
				failed++
			default:
				late++
			}
			if len(there)+len(back) == 0 && (near.err != nil || far.err != nil) {
				rt.Errorf("without a fault: %v, %v", near.err, far.err)
			}
		})
	})
	t.Logf("%d connections were unharmed, %d handshakes failed, %d connections failed after them", unharmed, failed, late)
	if !testing.Short() && (unharmed == 0 || failed == 0 || late == 0) {
		t.Error("not all that may happen has")
	}
}

// drawnFaults are up to two of a way: in the handshake, which is less than 3000 bytes, or behind
// it.
func drawnFaults(rt *rapid.T, name string) (f []simnet.Fault) {
	at := rapid.SampledFrom([]int64{0, 3000, 3000}).Draw(rt, "from")
	for range rapid.IntRange(0, 2).Draw(rt, name) {
		at += rapid.OneOf(rapid.Int64Range(0, 2500), rapid.Int64Range(0, 20_000)).Draw(rt, "behind the one before")
		f = append(f, simnet.Fault{
			At: at, Kind: simnet.Kind(rapid.IntRange(int(simnet.Flip), int(simnet.Part)).Draw(rt, "kind")),
			Len: rapid.Int64Range(1, 3000).Draw(rt, "len"), Bit: rapid.Uint8Range(0, 7).Draw(rt, "bit"),
			For: time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second,
		})
	}
	return f
}

// shaking is one side of such a connection.
type shaking struct {
	*Conn
	own, peer *Identity
	client    bool
	shaken    time.Duration
	got       []byte
	err       error // of the handshake, or of reading
}

// run makes the handshake, sends text and reads as much.
func (s *shaking) run(ctx context.Context, e *simnet.End, text []byte) {
	defer e.Close()
	side := s.own.Server
	if s.client {
		side = s.own.Client
	}
	began := time.Now()
	ctx, stop := context.WithTimeout(ctx, handshakeTime)
	defer stop()
	s.Conn, s.err = side(ctx, e, s.peer.Fingerprint())
	if s.shaken = time.Since(began); s.err != nil {
		return
	}
	_ = e.SetDeadline(time.Now().Add(handshakeTime))
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = s.Write(text) }) // where it fails, the other side's reading does
	s.got = make([]byte, len(text))
	n, err := io.ReadFull(s, s.got)
	s.got, s.err = s.got[:n], err
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		s.err = io.ErrUnexpectedEOF
	}
	sending.Wait()
}
