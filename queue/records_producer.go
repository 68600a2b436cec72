package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// ByteProducer puts records into a queue: byte slices of any length up to a bound.
//
// Experimental: it may change in any release.
type ByteProducer struct{ q *Producer[slotValue] }

// DialBytes makes a producer of the queue of records that is published under a name, as [Dial] makes
// one of a queue of values. It has memory for one record of the greatest length. Errors as [Dial].
//
// Experimental: it may change in any release.
func DialBytes(ctx context.Context, p *vmmc.Process, name string) (*ByteProducer, error) {
	q, err := dialAny[slotValue](ctx, p, name)
	if err != nil {
		return nil, err
	}
	if q.record == noRecords {
		err = fmt.Errorf("%s: %w", q.op("dial"), badHeader(errors.New("it is no queue of records")))
		return nil, errors.Join(err, q.release())
	}
	return &ByteProducer{q}, nil
}

// MaxLen is the length of the longest record that the queue takes.
//
// Experimental: it may change in any release.
func (b *ByteProducer) MaxLen() int { return b.q.record }

// Put puts a record, of which it keeps nothing. Waits and errors as [Producer.Put];
// [vmmc.ErrBadArg] if the record is longer than [ByteProducer.MaxLen].
//
// Experimental: it may change in any release.
func (b *ByteProducer) Put(ctx context.Context, record []byte) error {
	one := [1][]byte{record}
	_, err := b.PutAll(ctx, one[:])
	return err
}

// PutAll puts all records, in as few messages as there is room for. It returns how many it has put,
// which are all unless it fails. Errors as [ByteProducer.Put], with none put if one is too long; with
// ErrOutcomeUnknown the records in doubt are counted as put.
//
// Experimental: it may change in any release.
func (b *ByteProducer) PutAll(ctx context.Context, records [][]byte) (int, error) {
	q := b.q
	if err := b.checkLengths(records); err != nil {
		return 0, err
	}
	if err := q.acquire(ctx, "put into"); err != nil {
		return 0, err
	}
	defer q.sem.Release()
	n, err := b.putAll(ctx, records, len(records) == 1 && q.inBurst())
	q.putEnded()
	return n, err
}

// TryPut puts a record if there is room, as [Producer.TryPut] does a value. It does not wait, except
// for the transfer of a record of 64 KiB or more.
//
// Experimental: it may change in any release.
func (b *ByteProducer) TryPut(record []byte) (bool, error) {
	q, ctx := b.q, noWait
	one := [1][]byte{record}
	if err := b.checkLengths(one[:]); err != nil {
		return false, err
	}
	if vmmc.InHandler() {
		return false, checkCall(ctx, q.op("put into"))
	}
	if !q.sem.TryAcquire() {
		return false, nil
	}
	defer q.sem.Release()
	if max(slotsOf(len(record)), uint64(q.inDoubt))*uint64(q.slot) > maxBatch {
		ctx = context.Background() // its transfer would be given up after the first piece
	}
	if q.isClosed() {
		return false, closedError(q.op("put into"))
	}
	room, err := q.room()
	if err != nil {
		return false, fmt.Errorf("%s: %w", q.op("put into"), err)
	}
	if room < b.need(q.put.Load(), len(record)) {
		if err := q.lane.Err(); err != nil { // there will be none
			return false, fmt.Errorf("%s: %w", q.op("put into"), err)
		}
		return false, nil
	}
	n, err := b.putAll(ctx, one[:], false)
	if n == 0 && errors.Is(err, vmmc.ErrCanceled) {
		return false, nil // it would have had to wait
	}
	return n == 1, err
}

// Pending is how many slots have records that are not known to be taken: 0 if all were taken, and
// otherwise at least the number of these records. See [Producer.Pending].
//
// Experimental: it may change in any release.
func (b *ByteProducer) Pending() int { return b.q.Pending() }

// Close waits until all records are taken, see [Producer.Close].
//
// Experimental: it may change in any release.
func (b *ByteProducer) Close(ctx context.Context) error { return b.q.Close(ctx) }

func (b *ByteProducer) checkLengths(records [][]byte) error {
	for _, r := range records {
		if len(r) > b.q.record {
			return &vmmc.Error{
				Op: b.q.op("put into"), Code: vmmc.ErrBadArg,
				Err: fmt.Errorf("a record of %d bytes: the queue takes at most %d", len(r), b.q.record),
			}
		}
	}
	return nil
}

// need is how many slots a record of n bytes needs, with the padding before it.
func (b *ByteProducer) need(first uint64, n int) uint64 {
	k := slotsOf(n)
	if left := b.q.slots - first&(b.q.slots-1); left < k {
		return left + k
	}
	return k
}

// putAll waits for room and sends, until all are put. If burst is set a record of one slot is left
// to the link's queue.
func (b *ByteProducer) putAll(ctx context.Context, records [][]byte, burst bool) (n int, err error) {
	if err = b.q.resend(ctx); err == nil {
		for n < len(records) && err == nil {
			var put int
			put, err = b.putSome(ctx, records[n:], burst)
			n += put
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", b.q.op("put into"), err)
	}
	return n, err
}

// putSome waits for room for a record, and sends one message with it and those behind it that
// there is room for. It returns how many were put, of one message all or none.
func (b *ByteProducer) putSome(ctx context.Context, records [][]byte, burst bool) (int, error) {
	q := b.q
	first := q.put.Load()
	need := b.need(first, len(records[0]))
	room, err := q.waitRoom(ctx, need)
	if err != nil {
		return 0, err
	}
	pair.At("put.room")
	if pad := need - slotsOf(len(records[0])); pad > 0 {
		if err := b.putPadding(ctx, first, int(pad)); err != nil {
			return 0, err
		}
		first, room = first+pad, room-pad
	}
	if burst && need == 1 {
		encodeRecord(q.values.Bytes(q.one), valueSize, records[0])
		return q.sendAll(ctx, q.one, true)
	}
	n, run := 0, 0
	for most := min(room, q.longestRun(first)); n < len(records); n++ {
		k := int(slotsOf(len(records[n])))
		if uint64(run+k) > most {
			break
		}
		run += k
	}
	at := run
	for _, r := range records[:n] {
		at -= int(slotsOf(len(r)))
		encodeRecord(q.batch[at*q.slot:], q.slot, r)
	}
	q.encodeNumbers(q.batch[:run*q.slot], first)
	if sent, err := q.sendRun(ctx, first, run); err != nil {
		if sent == 0 {
			n = 0
		}
		return n, err
	}
	return n, nil
}

// putPadding puts the padding up to the end of the ring. It fails as if the record behind it had
// not been sent: the outcome of that is known.
func (b *ByteProducer) putPadding(ctx context.Context, first uint64, slots int) error {
	q := b.q
	for i := range slots {
		binary.NativeEndian.PutUint32(q.batch[i*q.slot:], padding)
	}
	q.encodeNumbers(q.batch[:slots*q.slot], first)
	if _, err := q.sendRun(ctx, first, slots); err != nil {
		return q.knownError("send padding", err)
	}
	pair.At("put.padded")
	return nil
}

// encodeRecord fills b with a record: its slots of so many bytes, the last one first, but for their
// numbers.
func encodeRecord(b []byte, slot int, record []byte) {
	at := int(slotsOf(len(record))-1) * slot
	binary.NativeEndian.PutUint32(b[at:], uint32(len(record)))
	n := copy(b[at+lengthSize:at+valueSize], record)
	clear(b[at+lengthSize+n : at+valueSize]) // of an earlier record
	for n < len(record) {
		at -= slot
		k := copy(b[at:at+valueSize], record[n:])
		clear(b[at+k : at+valueSize])
		n += k
	}
}
