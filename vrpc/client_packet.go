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

// packetTransport is a UDP socket of a client.
type packetTransport struct {
	conn         net.Conn
	limit        int
	decoded      int
	again, total time.Duration
	waiting      pending
	reading      sync.WaitGroup
	ended        chan struct{}
}

func newPacketTransport(c net.Conn, s *clientSettings) *packetTransport {
	w := &packetTransport{
		conn: c, limit: min(s.limit, maxDatagram), decoded: s.decoded, again: s.firstRetry, total: s.retryTotal,
		ended: make(chan struct{}),
	}
	w.reading.Go(w.read)
	return w
}

func (w *packetTransport) peer() string { return peerName(w.conn) }

// read hands replies to the waiting calls. An error is from a host or router on the path and says
// that the server cannot be reached: it ends the waiting calls, and no others.
func (w *packetTransport) read() {
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
		in := getBuffer()
		in.b = append(in.b, b[:n]...)
		w.waiting.deliver(binary.BigEndian.Uint32(b), in)
	}
}

func (w *packetTransport) close() error {
	if w.waiting.fail(ErrClosed, true) {
		close(w.ended)
	}
	err := w.conn.Close()
	w.reading.Wait()
	return err
}

func (w *packetTransport) call(
	ctx context.Context, h rpcmsg.Call, args xdr.Marshaler, res xdr.Unmarshaler,
) error {
	b := getBuffer()
	defer b.release()
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
	defer reply.release()
	return decodeReply(reply.b, res, w.decoded)
}

// exchange sends a call until it is answered.
func (w *packetTransport) exchange(ctx context.Context, b []byte, wait *waiter) (*buffer, error) {
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

func (w *packetTransport) post(_ context.Context, h rpcmsg.Call, args xdr.Marshaler) error {
	b := getBuffer()
	defer b.release()
	out, err := appendCall(b.b, &h, args, w.limit)
	if err != nil {
		return err
	}
	b.b = out
	_, err = w.conn.Write(out)
	return err
}

func (*packetTransport) flush(context.Context) error { return nil }
