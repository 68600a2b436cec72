package vrpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/rpcrecord"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/xdr"
)

// enough is how many bytes of posted calls are gathered.
const enough = 32 << 10

// streamTransport is a connection of a client, TCP or unix.
type streamTransport struct {
	conn     net.Conn
	limit    int
	decoded  int // see WithMaxDecodedReply
	waiting  pending
	sendLock *semaphore.Semaphore // one: to write
	batch    []byte               // what was posted, with the turn
	reading  sync.WaitGroup
	alive    *keepAlive
}

func newStreamTransport(c net.Conn, s *clientSettings) *streamTransport {
	w := &streamTransport{conn: c, limit: s.limit, decoded: s.decoded, sendLock: semaphore.New(1)}
	w.alive = watchPeer(c, s.silence, w.end)
	w.reading.Go(w.read)
	return w
}

func (w *streamTransport) peer() string { return peerName(w.conn) }

func peerName(c net.Conn) string { return c.RemoteAddr().Network() + " " + c.RemoteAddr().String() }

// read delivers replies to waiting calls until the connection ends.
func (w *streamTransport) read() {
	r := rpcrecord.NewReader(w.conn, w.limit, nil)
	for {
		b := getBuffer()
		var err error
		if b.b, err = r.Next(b.b); err == nil && len(b.b) < 4 {
			err = fmt.Errorf("a record of %d bytes is no reply", len(b.b))
		}
		if err != nil {
			b.release()
			w.fail(err)
			return
		}
		w.waiting.deliver(binary.BigEndian.Uint32(b.b), b)
	}
}

func (w *streamTransport) fail(err error) {
	w.alive.stop()
	w.end(err)
}

// end ends the calls and the connection.
func (w *streamTransport) end(err error) {
	w.waiting.fail(fmt.Errorf("%w: %w", ErrLost, err), true)
	_ = w.conn.Close()
}

func (w *streamTransport) close() error {
	w.alive.stop()
	w.waiting.fail(ErrClosed, true)
	err := w.conn.Close()
	w.reading.Wait()
	_ = w.sendLock.Acquire(context.Background()) // what was given up while it was sent has ended
	w.sendLock.Release()
	return err
}

func (w *streamTransport) call(
	ctx context.Context, h rpcmsg.Call, args xdr.Marshaler, res xdr.Unmarshaler,
) error {
	b, err := w.encode(&h, args)
	if err != nil {
		return err
	}
	wait, err := w.waiting.add(h.XID)
	if err != nil {
		b.release()
		return err
	}
	defer w.waiting.remove(h.XID, wait)
	if err := w.send(ctx, b); err != nil {
		return err
	}
	reply, err := wait.wait(ctx)
	if err != nil {
		return err
	}
	defer reply.release()
	return decodeReply(reply.b, res, w.decoded)
}

func (w *streamTransport) encode(h *rpcmsg.Call, args xdr.Marshaler) (*buffer, error) {
	b := getBuffer()
	out, err := appendCall(append(b.b, make([]byte, rpcrecord.MarkLen)...), h, args, w.limit)
	if err != nil {
		b.release()
		return nil, err
	}
	rpcrecord.Mark(out, len(out)-rpcrecord.MarkLen)
	b.b = out
	return b, nil
}

func (w *streamTransport) acquireSend(ctx context.Context) error {
	if w.sendLock.Acquire(ctx) != nil {
		return ctx.Err()
	}
	return nil
}

func (w *streamTransport) releaseSend() { w.sendLock.Release() }

// send writes a call, after what was posted. It releases b.
func (w *streamTransport) send(ctx context.Context, b *buffer) error {
	if err := w.acquireSend(ctx); err != nil {
		b.release()
		return err
	}
	if posted := len(w.batch); posted > 0 {
		w.batch = append(w.batch, b.b...)
		b.release()
		return w.writeBatch(ctx, posted)
	}
	return w.write(ctx, b, 0)
}

func (w *streamTransport) post(ctx context.Context, h rpcmsg.Call, args xdr.Marshaler) error {
	b, err := w.encode(&h, args)
	if err != nil {
		return err
	}
	defer b.release()
	if err := w.acquireSend(ctx); err != nil {
		return err
	}
	posted := len(w.batch)
	if w.batch = append(w.batch, b.b...); len(w.batch) >= enough {
		return w.writeBatch(ctx, posted)
	}
	w.releaseSend()
	return nil
}

func (w *streamTransport) flush(ctx context.Context) error {
	if err := w.acquireSend(ctx); err != nil {
		return err
	}
	if len(w.batch) == 0 {
		w.releaseSend()
		return nil
	}
	return w.writeBatch(ctx, len(w.batch))
}

// writeBatch writes the batch, of which the first bytes were posted before. The turn is taken, and
// given back.
func (w *streamTransport) writeBatch(ctx context.Context, posted int) error {
	b := getBuffer()
	b.b, w.batch = w.batch, b.b[:0]
	return w.write(ctx, b, posted)
}

// write writes b and gives back the turn. If ctx ends when some of b is written, the rest is
// written on a goroutine of its own: the stream is others' too. If it ends before, what was posted
// before stays so.
func (w *streamTransport) write(ctx context.Context, b *buffer, posted int) error {
	n, err := w.writeUntil(ctx, b.b)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		w.fail(err)
		err = fmt.Errorf("%w: %w", ErrLost, err)
	case n > 0:
		go func() {
			if _, err := w.conn.Write(b.b[n:]); err != nil {
				w.fail(err)
			}
			b.release()
			w.releaseSend()
		}()
		return ctx.Err()
	default:
		err = ctx.Err()
		w.batch = append(w.batch, b.b[:posted]...)
	}
	b.release()
	w.releaseSend()
	return err
}

// writeUntil writes b as far as ctx lasts. The connection has no deadline when it returns.
func (w *streamTransport) writeUntil(ctx context.Context, b []byte) (int, error) {
	if ctx.Done() == nil {
		return w.conn.Write(b)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = w.conn.SetWriteDeadline(time.Unix(1, 0))
		close(over)
	})
	n, err := w.conn.Write(b)
	if !stop() {
		<-over
		_ = w.conn.SetWriteDeadline(time.Time{})
	}
	return n, err
}
