package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// ByteConsumer takes records out of a queue: byte slices of any length up to a bound.
//
// A get copies the record once, into memory of the caller. It lends none of the queue's: the
// producer's process can write to that, also to what the consumer has looked at.
//
// Experimental: it may change in any release.
type ByteConsumer struct{ c *Consumer[slotValue] }

// ListenBytes makes a queue of records of up to most bytes, as [Listen] makes one of values. A
// record of up to 56 bytes takes one slot ([Slots]) of 64 bytes, and one more for each further 60
// bytes. There are at least as many slots as four of the longest records take. Errors as [Listen];
// [vmmc.ErrBadArg] if most is negative, or more than a lane of 1 GiB can have.
//
// Experimental: it may change in any release.
func ListenBytes(
	ctx context.Context, p *vmmc.Process, name string, most int, opts ...Option,
) (*ByteConsumer, error) {
	if most < 0 { // also noRecords
		return nil, &vmmc.Error{
			Op: fmt.Sprintf("listen as queue %q", name), Code: vmmc.ErrBadArg,
			Err: fmt.Errorf("records of %d bytes: at least 0", most),
		}
	}
	c, err := listen[slotValue](ctx, p, name, most, opts)
	if err != nil {
		return nil, err
	}
	return &ByteConsumer{c}, nil
}

// Get takes a record. It lies in buf if its capacity is at least the record's length, and in new
// memory otherwise. Waits and errors as [Consumer.Get].
//
// Experimental: it may change in any release.
func (b *ByteConsumer) Get(ctx context.Context, buf []byte) ([]byte, error) {
	if err := b.c.acquire(ctx); err != nil {
		return nil, err
	}
	defer b.c.release()
	_, err := b.c.takeOrWait(ctx, 1, func(l *lane, _ int) (n int) {
		buf, n = takeRecord(b.c, l, buf)
		return n
	})
	if err != nil {
		return nil, err
	}
	return buf, nil
}

// GetSome takes as many records as are there and dst has room for, and waits while there is none. It
// stores each in an element of dst, in the element's memory if its capacity is enough, and in new
// memory otherwise. It returns how many it has taken, see [Consumer.GetSome].
//
// Experimental: it may change in any release.
func (b *ByteConsumer) GetSome(ctx context.Context, dst [][]byte) (int, error) {
	if err := b.c.acquire(ctx); err != nil {
		return 0, err
	}
	defer b.c.release()
	return b.c.takeOrWait(ctx, len(dst), func(l *lane, n int) int {
		for k := n; k < len(dst); k++ {
			record, taken := takeRecord(b.c, l, dst[k])
			if taken == 0 {
				return k - n
			}
			dst[k] = record
		}
		return len(dst) - n
	})
}

// TryGet takes a record if there is one, as [Consumer.TryGet] does a value. The record lies as that
// of [ByteConsumer.Get].
//
// Experimental: it may change in any release.
func (b *ByteConsumer) TryGet(buf []byte) (record []byte, ok bool, err error) {
	err = b.c.try(func() error {
		if err := b.c.lossError(); err != nil {
			return err
		}
		ok = b.c.takeByTurns(1, func(l *lane, _ int) (n int) {
			buf, n = takeRecord(b.c, l, buf)
			return n
		}) > 0
		if ok {
			record = buf
			return nil
		}
		return b.c.endError()
	})
	return record, ok, err
}

// All takes all records, as [Consumer.All] does values. A record is valid until the loop's next
// round.
//
// Experimental: it may change in any release.
func (b *ByteConsumer) All(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var buf []byte
		for {
			record, err := b.Get(ctx, buf)
			if errors.Is(err, ErrEnd) || !yield(record, err) || err != nil {
				return
			}
			buf = record
		}
	}
}

// Replace lets another producer dial in place of one that was lost, see [Consumer.Replace].
//
// Experimental: it may change in any release.
func (b *ByteConsumer) Replace(lost *LostError) bool { return b.c.Replace(lost) }

// Close ends the queue, see [Consumer.Close].
//
// Experimental: it may change in any release.
func (b *ByteConsumer) Close() error { return b.c.Close() }

// takeRecord takes a record of a lane into buf, or into new memory that it returns. taken is 1, or 0
// if there is none.
func takeRecord(c *Consumer[slotValue], l *lane, buf []byte) (record []byte, taken int) {
	begin, skipped := l.next, uint64(0)
	for taken == 0 && c.hasValue(l) && l.violation.Load() == nil {
		pair.At("get.seen")
		mem, at := l.own.Bytes(), c.offset(l.next)
		length := binary.NativeEndian.Uint32(mem[at:]) // once: the producer may change it
		left := c.slots - l.next&(c.slots-1)
		switch {
		case length == padding && skipped < slotsOf(c.opts.record): // more would hold the get for ever
			skipped++
			c.taken(l, 1)
		case uint64(length) > uint64(c.opts.record) || slotsOf(int(length)) > left:
			e := &vmmc.Error{
				Op: c.op(), Peer: l.im.Exporter().String(), Code: vmmc.ErrProtocol,
				Err: fmt.Errorf("a record of %d bytes, of at most %d, with %d slots up to the ring's end",
					length, c.opts.record, left),
			}
			l.violation.Store(e) // nothing more is taken of the lane, so this is logged once
			if !c.opts.ends {    // of a queue that ends, a get returns it
				slog.Warn("queue: a producer breaks the protocol, its lane is dropped",
					"queue", c.name, "producer", l.im.Exporter(), "err", e)
			}
		default:
			buf = copyRecord(c, mem, at, buf, int(length))
			pair.At("get.copied")
			l.records++
			c.taken(l, slotsOf(int(length)))
			taken = 1
		}
	}
	if l.next != begin {
		c.acknowledgeRest(l)
	}
	return buf, taken
}

// copyRecord copies a record of n bytes out of its slots, the first of which lies at an offset.
func copyRecord(c *Consumer[slotValue], mem []byte, at int, buf []byte, n int) []byte {
	if cap(buf) < n || buf == nil {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	done := copy(buf, mem[at+lengthSize:at+valueSize])
	for done < n {
		at -= c.slot
		done += copy(buf[done:], mem[at:at+valueSize])
	}
	return buf
}
