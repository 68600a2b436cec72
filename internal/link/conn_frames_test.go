package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// frameFault happens to a whole frame: simnet.Lose, simnet.Repeat, or simnet.Swap with the next
// one.
type frameFault struct {
	at   int // the frame, from 0
	kind simnet.Kind
}

// frameNet is a network that knows where frames begin and end, which to a checksum of bytes alone
// are all in order.
type frameNet struct {
	ends   []*net.TCPConn
	wg     sync.WaitGroup
	silent atomic.Bool // nothing comes back
}

// framewise puts one before y, and gives the end that takes its place.
func (b *bridge) framewise(y *net.TCPConn, faults *[2][]frameFault) (near *net.TCPConn, err error) {
	x, near, c, err := simnet.Pair(nil, nil)
	if err != nil {
		return nil, err
	}
	n := &frameNet{ends: []*net.TCPConn{x, y}}
	b.mu.Lock()
	b.conns, b.nets = append(b.conns, c), append(b.nets, n)
	b.mu.Unlock()
	n.wg.Go(func() { n.pass(y, x, faults[0], new(atomic.Bool)) })
	n.wg.Go(func() { n.pass(x, y, faults[1], &n.silent) })
	return near, nil
}

func (n *frameNet) close() {
	for _, e := range n.ends {
		_ = e.Close()
	}
	n.wg.Wait()
}

// pass is one way.
func (n *frameNet) pass(from, to *net.TCPConn, faults []frameFault, silent *atomic.Bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	var kept []byte // goes behind the next frame
	for i := 0; ; i++ {
		frame := make([]byte, wire.HeaderSize)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		var h wire.Header
		if h.ParseStored(frame) != nil {
			return
		}
		frame = append(frame, make([]byte, h.Chunk)...)
		if _, err := io.ReadFull(from, frame[wire.HeaderSize:]); err != nil {
			return
		}
		out := bytes.Join([][]byte{frame, kept}, nil)
		kept = nil
		if len(faults) > 0 && faults[0].at <= i {
			switch faults[0].kind {
			case simnet.Lose:
				out = nil
			case simnet.Repeat:
				out = bytes.Join([][]byte{frame, frame}, nil)
			case simnet.Swap:
				out, kept = nil, frame
			}
			faults = faults[1:]
		}
		if silent.Load() {
			continue
		}
		if _, err := to.Write(out); err != nil {
			return
		}
	}
}

// The same holds where the network loses, repeats or exchanges whole frames, of which each by
// itself is undamaged.
func TestFramesLostRepeatedExchanged(t *testing.T) {
	way := rapid.Custom(func(rt *rapid.T) (f []frameFault) {
		at := 0
		for range rapid.IntRange(0, 2).Draw(rt, "faults") {
			at += rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 60)).Draw(rt, "frame")
			f = append(f, frameFault{at, rapid.SampledFrom([]simnet.Kind{simnet.Lose, simnet.Repeat, simnet.Swap}).Draw(rt, "kind")})
		}
		return f
	})
	damaged := linkSurvives(t, nil, func(rt *rapid.T, _ bool) []faults {
		return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) faults {
			return faults{frames: &[2][]frameFault{way.Draw(rt, "there"), way.Draw(rt, "back")}}
		}), 0, 4).Draw(rt, "connections")
	})
	if damaged == 0 {
		t.Error("no frame was found to be another one than the next")
	}
}

// A frame that is another one's is counted as damaged, and its link goes on; whatever it is and
// whichever way it goes.
func TestFrameThatIsNotTheNext(t *testing.T) {
	for _, kind := range []simnet.Kind{simnet.Lose, simnet.Repeat, simnet.Swap} {
		for at := range 6 {
			t.Run(kind.String(), func(t *testing.T) {
				mem := memory(t, 4096)
				var f [2][]frameFault
				f[at%2] = []frameFault{{at / 2, kind}}
				b := bridged(t, t, Terms{SilenceLimit: 300 * time.Millisecond}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, faults{frames: &f})
				defer b.close()
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				for i := range 6 {
					if _, err := b.out.Send(ctx, Message{Handle: 1, Off: uint64(64 * i), Src: bytes.Repeat([]byte{byte(i + 1)}, 64)}); err != nil {
						t.Fatal(err)
					}
					if err := b.out.Get(ctx, Read{Handle: 1, Off: uint64(64 * i), Dst: make([]byte, 64)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.out.WaitApplied(ctx, nil); err != nil {
					t.Fatal(err)
				}
				for i := range 6 * 64 {
					if mem[i] != byte(i/64+1) {
						t.Fatalf("byte %d is %d", i, mem[i])
					}
				}
				if n, resumed := b.out.ConnStats(); n == 0 || n != resumed {
					t.Errorf("%d connections were lost, %d resumed", n, resumed)
				}
				// What is lost with nothing behind it is missed, not damaged.
				if n := b.out.ChecksumErrors() + b.in.ChecksumErrors(); n == 0 && kind == simnet.Repeat {
					t.Error("no frame was found damaged")
				}
			})
		}
	}
}

// Credits that were lost with nothing behind them come all the same.
func TestLostCreditsAreAskedFor(t *testing.T) {
	mem := memory(t, 4096)
	ran, open := make(chan struct{}, shmlayout.Credits+1), make(chan struct{})
	note := func(int, uint32, []byte) { <-open; ran <- struct{}{} }
	b := bridged(t, t, Terms{SilenceLimit: 300 * time.Millisecond}, []*Target{{Handle: 1, Mem: mem, Write: true, Notify: note}}, faults{frames: new([2][]frameFault)})
	defer b.close()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for range shmlayout.Credits {
		if _, err := b.out.Send(ctx, Message{Handle: 1, Src: make([]byte, 4), Notify: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.out.WaitApplied(ctx, nil); err != nil { // nothing else is owed
		t.Fatal(err)
	}
	b.nets[0].silent.Store(true)
	close(open)
	for range shmlayout.Credits {
		<-ran
	}
	for err := context.DeadlineExceeded; errors.Is(err, context.DeadlineExceeded); { // each wait for itself is too short
		if ctx.Err() != nil {
			t.Fatal("no credit comes back")
		}
		short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err = b.out.Send(short, Message{Handle: 1, Src: make([]byte, 4), Notify: true}); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		stop()
	}
	<-ran
}

// An exporter that owes nothing but credits, and says nothing, is noticed too, also one that is
// waited for longer than it takes until they would be asked for again.
func TestSilenceBeforeCredits(t *testing.T) {
	for _, silence := range []time.Duration{100 * time.Millisecond, 2500 * time.Millisecond} {
		t.Run(silence.String(), func(t *testing.T) { silenceBeforeCredits(t, silence) })
	}
}

func silenceBeforeCredits(t *testing.T, silence time.Duration) {
	e, fd, far := halfLink(t)
	rq, err := NewRequester(e, fd, nil, Terms{SilenceLimit: silence}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	over := make(chan error, 1)
	go func() {
		for {
			if _, err := rq.Send(ctx, Message{Handle: 1, Src: make([]byte, 4), Notify: true}); err != nil {
				over <- err
				return
			}
		}
	}()
	for seq := uint64(1); seq <= shmlayout.Credits; {
		if h, _ := catch(t, far); h.Type == wire.Data {
			seq++
		}
	}
	sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: shmlayout.Credits}, nil)
	if err := <-over; !errors.Is(err, ErrGone) {
		t.Errorf("a notification whose credits never come: %v", err)
	}
}
