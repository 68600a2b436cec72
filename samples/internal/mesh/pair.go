package mesh

import (
	"context"
	"encoding/binary"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
)

// A pair's buffer begins with words of their own, a cache line each; the places for
// messages follow.
const (
	line    = 64
	freed   = 0 * line // how many of the owner's own messages to the other were read there
	passed  = 1 * line // the barrier that the other has come to
	arrived = 2 * line // how many of the owner's messages have arrived there
	header  = 3 * line
)

// Pair is what a rank shares with another one: memory here for the other's
// messages, and an import of its memory for this one's.
type Pair struct {
	name string
	exp  *vmmc.Export
	mem  []byte
	im   *vmmc.Import

	stride int
	ends   []vmmc.Word // the last word of each place
	seen   []uint32    // what it was when the place was received last
	last   uint32      // the last word of the message that was received last

	sent, received     uint32 // counts of messages, which wrap around
	sendTo, receiveAt  int    // the next places
	unused             int    // places there, as far as this rank knows
	read               uint32 // how many of its messages were read there, as it was told last
	freed, passed, had vmmc.Word
	word               [4]byte // being sent
}

// export makes the memory for the messages of rank r.
func (p *Pair) export(v *vmmc.Process, r, room int) error {
	mem, err := v.Alloc(header + room)
	if err != nil {
		return err
	}
	p.mem = mem.Bytes()
	if p.exp, err = v.Export(ranks.PairBuffer+uint32(r), p.mem); err != nil {
		return err
	}
	for off, w := range map[int]*vmmc.Word{freed: &p.freed, passed: &p.passed, arrived: &p.had} {
		if *w, err = p.exp.Word(off); err != nil {
			return err
		}
	}
	return nil
}

// lay divides the memory anew, when nothing is under way.
func (p *Pair) lay(ctx context.Context, stride, places int) error {
	for p.unused < len(p.ends) {
		if err := p.awaitFree(ctx); err != nil {
			return err
		}
	}
	p.stride, p.sendTo, p.receiveAt, p.unused = stride, 0, 0, places
	p.ends, p.seen = make([]vmmc.Word, places), make([]uint32, places)
	for i := range places {
		w, err := p.exp.Word(header + (i+1)*stride - vmmc.WordSize())
		if err != nil {
			return err
		}
		// All messages to come end in another word.
		w.Store(p.last)
		p.ends[i], p.seen[i] = w, p.last
	}
	return nil
}

// Path is how messages to the other travel: "mapped" or "stream".
func (p *Pair) Path() string { return p.im.Path().String() }

// Send sends a message, as soon as there is a place for it. A message lies at the
// end of its place, so that the receiver looks at the same word whatever its size.
func (p *Pair) Send(ctx context.Context, message []byte) error {
	for p.unused == 0 {
		if err := p.awaitFree(ctx); err != nil {
			return err
		}
	}
	if err := p.im.Send(ctx, message, header+(p.sendTo+1)*p.stride-len(message)); err != nil {
		return err
	}
	p.unused--
	p.sent++
	p.sendTo = (p.sendTo + 1) % len(p.ends)
	return nil
}

func (p *Pair) awaitFree(ctx context.Context) error {
	n, err := p.freed.Wait(ctx, p.read)
	if err != nil {
		return err
	}
	p.unused += int(n - p.read)
	p.read = n
	return nil
}

// Receive waits for the next message and gives its place, at the end of which the
// message is. It stays there until Free.
func (p *Pair) Receive(ctx context.Context) ([]byte, error) {
	i := p.receiveAt
	v, err := p.ends[i].Wait(ctx, p.seen[i])
	if err != nil {
		return nil, err
	}
	p.seen[i], p.last = v, v
	p.received++
	p.receiveAt = (i + 1) % len(p.ends)
	return p.Own(i), nil
}

// Received is the place of the message that was received n messages ago, 0 being
// the last one.
func (p *Pair) Received(ago int) []byte {
	n := len(p.ends)
	return p.Own((p.receiveAt - 1 - ago + 2*n) % n)
}

// Free tells the other that all places of what was received may be used again.
func (p *Pair) Free(ctx context.Context) error { return p.put(ctx, freed, p.received) }

// Confirm tells the other that all that was received has arrived.
func (p *Pair) Confirm(ctx context.Context) error { return p.put(ctx, arrived, p.received) }

// AwaitConfirm waits until all that was sent has arrived.
func (p *Pair) AwaitConfirm(ctx context.Context) error {
	for {
		n := p.had.Load()
		if n == p.sent {
			return nil
		}
		if _, err := p.had.Wait(ctx, n); err != nil {
			return err
		}
	}
}

func (p *Pair) put(ctx context.Context, off int, v uint32) error {
	binary.LittleEndian.PutUint32(p.word[:], v)
	return p.im.Send(ctx, p.word[:], off)
}
