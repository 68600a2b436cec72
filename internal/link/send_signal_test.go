package link

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// narrow is a cipher that encrypts nothing. Its socket has room for so many bytes.
type narrow struct {
	io   [2]unix.IO
	room atomic.Int64
}

func (c *narrow) Send(fd int, pieces ...[]byte) (int, error) {
	b := bytes.Join(pieces, nil)
	b = b[:min(len(b), int(c.room.Load()))]
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.io[0].Send(fd, b, nil)
	c.room.Add(-int64(n))
	return n, err
}

func (c *narrow) Recv(fd int, b []byte) (int, error) {
	if fd < 0 {
		return 0, nil
	}
	return c.io[1].Recv(fd, b, nil)
}

func (*narrow) HasData() bool { return false }
func (*narrow) Drop()         {}

// The socket takes the data of a short signal and a part of its word: the data can have arrived,
// the word cannot.
func TestSignalAcknowledgedInPart(t *testing.T) {
	const size, word = 64, 7
	for name, c := range map[string]struct {
		ack uint64
		bad bool
	}{"the data": {1, false}, "the word": {2, true}} {
		t.Run(name, func(t *testing.T) {
			e, fd, far := halfLink(t)
			wide := new(narrow)
			wide.room.Store(wire.HeaderSize + size - 4 + wire.HeaderSize/2)
			rq, err := NewRequester(e, fd, nil, Terms{Cipher: wide}, func(uint32, uint64, error) {}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			go func() {
				_, err := rq.SendSignal(t.Context(), Message{Handle: 1, Src: bytes.Repeat([]byte{1}, size)}, size, word)
				sent <- err
			}()
			if h, _ := catch(t, far); h.Type != wire.Data || h.Seq != 1 {
				t.Fatalf("in the place of the data is %+v", h)
			}
			sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: c.ack}, nil)
			for rq.AckedSeq() == 0 && rq.Err() == nil {
				runtime.Gosched()
			}
			if c.bad {
				if err := <-sent; !errors.Is(err, ErrProtocol) {
					t.Errorf("the signal: %v", err)
				}
				return
			}
			wide.room.Store(1 << 20)
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if h, _ := catch(t, far); h.Type != wire.Data || h.Seq != 2 || h.Off != size || h.Word != word {
				t.Errorf("in the place of the word is %+v", h)
			}
		})
	}
}

// The import of a long signal is closed while its connection is lost: the data does not arrive, and
// the word does not either.
func TestSignalOfAClosedImport(t *testing.T) {
	const size = 1 << 20
	mem := memory(t, size+4)
	dial := make(chan struct{})
	var b *bridge
	b = bridged(t, t, Terms{Redial: func(ctx context.Context, n, replied uint64, notices uint32) (int, Cipher, wire.Answer, error) {
		select {
		case <-dial:
		case <-ctx.Done():
		}
		return b.redial(ctx, n, replied, notices)
	}}, []*Target{{Handle: 1, Mem: mem, Write: true}})
	defer b.close()
	b.first().Part()
	sent := make(chan error, 1)
	go func() {
		_, err := b.out.SendSignal(t.Context(), Message{Handle: 1, Src: bytes.Repeat([]byte{1}, size)}, size, 7)
		sent <- err
	}()
	for b.out.lastSeq.Load() == 0 {
		runtime.Gosched()
	}
	b.first().Reset()
	for lost := uint64(0); lost == 0; lost, _ = b.out.ConnStats() {
		runtime.Gosched()
	}
	b.out.Cancel(1)
	close(dial)
	if err := <-sent; !errors.Is(err, ErrEnded) || !errors.Is(err, ErrUnknown) {
		t.Errorf("the signal: %v", err)
	}
	if err := b.out.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.in.rmu.Lock() // the race detector does not know that what is acknowledged is stored
	defer b.in.rmu.Unlock()
	if w := loadLast(mem, size); w != 0 {
		t.Errorf("the word is %d", w)
	}
}
