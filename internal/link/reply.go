package link

import (
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// reply is a get that is being answered, with tmu held.
type reply struct {
	target *Target
	handle uint32
	seq    uint64
	off    uint64
	size   uint64
	done   uint64
	last   uint32 // the last word, read before the rest
	raw    bool

	result  bool   // of an atomic: what was there before is in off
	refused uint32 // why there is no answer
}

// noTarget stands for an import that is no more.
var noTarget = Target{revoked: true}

// get queues the answer to a get. A getter that does not read its answers has
// no more gets taken than it may have outstanding.
func (in *In) get(h *wire.Header) error {
	in.nextApplied(h.Seq)
	in.count.Locked(page.Gets, 1)
	in.count.Locked(page.GetBytes, h.Size)
	if invariant.Enabled {
		in.trace("get", h.Handle, h.Seq, h.Off, h.Size)
	}
	t := in.targets[h.Handle]
	switch {
	case t == nil:
		t = &noTarget // refused in its turn: answers keep the order of the gets
	case !t.Read:
		return protocol("a get from import %d, which is write-only", h.Handle)
	case h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off:
		return protocol("a get of %d bytes at %d, the export has %d", h.Size, h.Off, len(t.Mem))
	}
	return in.answer(reply{target: t, handle: h.Handle, seq: h.Seq, off: h.Off, size: h.Size, raw: h.Flags&wire.Bytes != 0})
}

// answer answers r in its turn: a short one that is alone at once, others when all that has come is worked through.
func (in *In) answer(r reply) error {
	in.tmu.Lock()
	defer in.tmu.Unlock()
	if len(in.replies) >= maxFetches {
		return protocol("more than %d gets unanswered", maxFetches)
	}
	in.replies = append(in.replies, r)
	in.remember(r)
	in.e.warm(&in.stream)
	if len(in.replies) > 1 || r.size > small || in.rx.start < in.rx.end || in.asks || in.ackDue || !in.tx.calm() || in.torn.Load() {
		in.speaks = true
		return nil
	}
	payload, _ := in.nextReply(&in.tx.own)
	if in.say(&in.tx.own, payload) && !in.tx.calm() { // a pad is due
		in.speaks = true
	}
	return nil
}

// nextReply gives the next chunk of the oldest reply. The last word is read
// before the rest, at the beginning: a getter that finds a flag there finds the
// data that the exporter stored before the flag.
func (in *In) nextReply(h *wire.Header) ([]byte, bool) {
	if len(in.replies) == 0 {
		return nil, false
	}
	r := &in.replies[0]
	switch {
	case r.result: // also of an export that has ended since: it was done
		*h = wire.Header{Type: wire.Result, Handle: r.handle, Seq: r.seq, Off: r.off}
	case r.target.revoked:
		*h = wire.Header{Type: wire.Nak, Handle: r.handle, Seq: r.seq, Word: wire.CodeRevoked}
	case r.refused != 0:
		*h = wire.Header{Type: wire.Nak, Handle: r.handle, Seq: r.seq, Word: r.refused}
	case r.target.Careful && !in.readable(r):
		*h = wire.Header{Type: wire.Nak, Handle: r.handle, Seq: r.seq, Word: wire.CodeRevoked}
	default:
		return in.nextChunk(r, h), true
	}
	in.popReply()
	return nil, true
}

// readable says whether the next chunk of an answer can be read, and has its export end if not.
func (in *In) readable(r *reply) bool {
	from, n := r.off+r.done, min(r.size-r.done, uint64(in.tx.most()))
	err := shm.Readable(r.target.Mem[from : from+n])
	if err == nil && !r.raw && r.done == 0 {
		err = shm.Readable(r.target.Mem[r.off+r.size-4 : r.off+r.size])
	}
	if err != nil {
		in.faulted(r.target, err)
	}
	return err == nil
}

// nextChunk is the next one of a get's answer.
func (in *In) nextChunk(r *reply, h *wire.Header) []byte {
	if r.done == 0 && !r.raw {
		r.last = loadLast(r.target.Mem, r.off+r.size-4)
	}
	n := min(r.size-r.done, uint64(in.tx.most()))
	*h = wire.Header{Type: wire.Reply, Handle: r.handle, Seq: r.seq, Off: r.done, Size: r.size, Chunk: uint32(n)}
	if r.raw {
		h.Flags = wire.Bytes
	}
	from := r.off + r.done
	r.done += n
	if r.done == r.size {
		h.Flags |= wire.Last
		if !r.raw {
			h.Word = r.last
			h.Chunk -= 4
		}
		defer in.popReply()
	}
	return r.target.Mem[from : from+uint64(h.Chunk)]
}

func (in *In) popReply() {
	n := copy(in.replies, in.replies[1:])
	in.replies[n] = reply{}
	in.replies = in.replies[:n]
}
