package vrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/xdr"
)

// slowest is the longest time between two datagrams of a call.
const slowest = 8 * time.Second

// packetWay is a UDP socket of a client.
type packetWay struct {
	conn         net.Conn
	limit        int
	decoded      int
	again, total time.Duration
	waiting      pending
	reading      sync.WaitGroup
	ended        chan struct{}
}

func newPacketWay(c net.Conn, s *clientSettings) *packetWay {
	w := &packetWay{
		conn: c, limit: min(s.limit, maxDatagram), decoded: s.decoded, again: s.again, total: s.total,
		ended: make(chan struct{}),
	}
	w.reading.Go(w.read)
	return w
}

func (w *packetWay) peer() string { return peerName(w.conn) }

// read hands replies to those who wait. An error is the answer of somebody between, that the server
// cannot be reached: it ends the calls that wait, and no others.
func (w *packetWay) read() {
	b := make([]byte, maxDatagram+1)
	for pause := time.Duration(0); ; {
		n, err := w.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			w.waiting.fail(fmt.Errorf("%w: %w", ErrLost, err), false)
			pause = min(max(2*pause, time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-w.ended:
			}
			continue
		}
		if pause = 0; n < 4 {
			continue
		}
		in := takeBuffer()
		in.b = append(in.b, b[:n]...)
		w.waiting.deliver(binary.BigEndian.Uint32(b), in)
	}
}

func (w *packetWay) close() error {
	if w.waiting.fail(ErrClosed, true) {
		close(w.ended)
	}
	err := w.conn.Close()
	w.reading.Wait()
	return err
}

func (w *packetWay) call(ctx context.Context, h rpcmsg.Call, args xdr.Marshaler, res xdr.Unmarshaler) error {
	b := takeBuffer()
	defer b.give()
	out, err := appendCall(b.b, &h, args, w.limit)
	if err != nil {
		return err
	}
	b.b = out
	wait, err := w.waiting.add(h.XID)
	if err != nil {
		return err
	}
	defer w.waiting.remove(h.XID, wait)
	reply, err := w.exchange(ctx, b.b, wait)
	if err != nil {
		return err
	}
	defer reply.give()
	return decodeReply(reply.b, res, w.decoded)
}

// exchange sends a call until it is answered.
func (w *packetWay) exchange(ctx context.Context, b []byte, wait *waiter) (*buffer, error) {
	end := time.NewTimer(w.total)
	defer end.Stop()
	pause := w.again
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		// What fails here fails where replies are read too, or is mended by the next datagram.
		_, sent := w.conn.Write(b)
		select {
		case r := <-wait.reply:
			if r == nil {
				return nil, wait.err
			}
			return r, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			return nil, errors.Join(fmt.Errorf("%w for %v", ErrTimeout, w.total), sent)
		case <-again.C:
			pause = min(2*pause, slowest)
			again.Reset(pause)
		}
	}
}

func (w *packetWay) post(_ context.Context, h rpcmsg.Call, args xdr.Marshaler) error {
	b := takeBuffer()
	defer b.give()
	out, err := appendCall(b.b, &h, args, w.limit)
	if err != nil {
		return err
	}
	b.b = out
	_, err = w.conn.Write(out)
	return err
}

func (*packetWay) flush(context.Context) error { return nil }
