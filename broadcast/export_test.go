package broadcast

import (
	"encoding/binary"

	"github.com/vmmc-go/vmmc"
)

// The parts of the memory that a false writer can have.
const (
	LogHeader  = logHeader
	PushOff    = pushOff
	FirstOff   = firstHighOff
	TailOff    = tailLowOff
	ArmedOff   = armedOff
	DeskSize   = deskSize
	ReaderSize = readerSize
	BellOff    = bellOff
)

// StartAt has the log begin at a position.
func StartAt(pos uint64) Option {
	return func(o *options) { o.start = func() uint64 { return pos } }
}

// Unmapped has all go by the stream.
func Unmapped() Option {
	return func(o *options) { o.export = append(o.export, vmmc.Unmapped()) }
}

// Bounds are the positions between which the log can be read.
func (w *Writer) Bounds() (first, tail uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first, w.tail
}

// Log is the memory that readers read.
func (w *Writer) Log() []byte { return w.log.Bytes() }

// LogID is the id of the log's export.
func (w *Writer) LogID() uint32 { return w.log.ID() }

// Process is the writer's.
func (w *Writer) Process() *vmmc.Process { return w.p }

// StoreTail stores a tail as a get may have it during a carry, or with true that of a closed log.
func (w *Writer) StoreTail(tail uint64, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if closed {
		tail |= closedBit
	}
	w.tailWord.Swap(pairOf(uint32(tail), uint32(tail>>32)))
}

// Log is what the reader has imported.
func (r *Reader) Log() *vmmc.Import { return r.log }

// Desk is what the reader can write to.
func (r *Reader) Desk() *vmmc.Import { return r.desk }

// Own is what the writer can write to.
func (r *Reader) Own() *vmmc.Export { return r.own.Export }

// Chunk is how many bytes of the log the reader copies at a time.
func (r *Reader) Chunk() int { return len(r.chunk) }

// Reset has the reader begin anew, as if the writer had answered its last request.
func (r *Reader) Reset(pos uint64, sure bool) {
	r.pos, r.sure, r.tail, r.lo, r.hi = pos, sure, 0, 0, 0
	r.ended, r.told, r.unsent, r.armed = false, false, false, r.bell.Load()
}

// Pos is the position of the next entry.
func (r *Reader) Pos() uint64 { return r.pos }

// StoreBounds stores positions as a writer does.
func StoreBounds(log []byte, first, tail uint64) {
	putHalves(log[firstHighOff:], uint32(first>>32), uint32(first))
	putHalves(log[tailLowOff:], uint32(tail), uint32(tail>>32))
}

// PutHeader writes the header of an entry.
func PutHeader(b []byte, pos uint64, n int) { putHeader(b, pos, n) }

func putHalves(b []byte, first, second uint32) {
	binary.NativeEndian.PutUint32(b, first)
	binary.NativeEndian.PutUint32(b[wordSize:], second)
}

// Waiting is how many readers have requested to be rung.
func (w *Writer) Waiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.desks {
		if d.armed.Load() != d.answered.Load() {
			n++
		}
	}
	return n
}
