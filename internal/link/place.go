package link

import (
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Where the data of a message goes, as it arrives: into the export, or for the
// part that a posted redirection covers, into the posted memory. All of it is
// called with rmu held.

// position is how far the message under way has arrived, as an offset in the export.
func (in *In) position() uint64 {
	pos := in.cur.base + in.cur.done
	if in.rx.hdr.Type != 0 {
		pos += uint64(in.rx.hdr.Chunk) - uint64(in.rx.need)
	}
	if invariant.Enabled {
		in.checkPosition(pos)
	}
	return pos
}

// reconsider makes the link ask where the next byte goes, for a redirection that was
// posted while a message arrives.
func (in *In) reconsider(r *Redirect) {
	in.rmu.Lock()
	if t := in.cur.target; t != nil && t.Redirect == r && in.rx.need > 0 {
		in.rx.reconsider()
	}
	in.rmu.Unlock()
}

// place says where the next of rest bytes of the chunk go; it may give room for
// fewer than there are, and is asked again. nil: nowhere.
func (in *In) place(rest int) []byte {
	m := &in.cur
	if m.target == nil {
		return nil
	}
	pos := in.position()
	end := pos + uint64(rest)
	if r := m.target.Redirect; r != nil && !m.raw {
		return r.place(in, pos, end)
	}
	return m.target.Mem[pos:end]
}

// place gives the memory for bytes [pos, end) of a message, or for the first of them.
func (r *Redirect) place(in *In, pos, end uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &in.cur
	p := &r.post
	if r.state == posted && !r.ending && !m.redirected {
		// A redirection begins at a whole word, and words that came before it was
		// posted stay where they are.
		from := max(p.lo, (pos+shm.WordSize-1)&^(shm.WordSize-1))
		switch {
		case from >= min(p.hi, m.base+m.size):
		case from > pos:
			return m.target.Mem[pos:min(end, from)]
		case r.takes():
			r.state, r.claim, r.first, r.n = claimed, in, from-p.lo, 0
			m.redirected = true
			if invariant.Enabled {
				r.check()
			}
		}
	}
	if r.state == claimed && r.claim == in && p.has(pos) {
		if from := p.lo + r.first; pos < from { // it comes once more, and was in its place when the range was claimed
			return m.target.Mem[pos:min(end, from)]
		}
		return p.at(pos)[:min(end, p.hi)-pos]
	}
	return m.target.Mem[pos:end]
}

// stopRedirect ends the redirection of the message under way; what is still to
// come goes to the export. A word of which part has arrived goes there whole.
// The redirection's lock is held.
func (in *In) stopRedirect() {
	t := in.cur.target
	if t == nil || t.Redirect == nil || t.Redirect.claim != in {
		return
	}
	r := t.Redirect
	pos := in.position()
	r.close(pos)
	if part := pos % shm.WordSize; part > 0 && r.post.has(pos) {
		// The redirection may end because its memory cannot be accessed; then that part is lost.
		_ = shm.TryDeposit(t.Mem[pos-part:pos], r.post.at(pos - part)[:part])
	}
	in.rx.reconsider()
}

// close fixes how much was redirected: all up to pos.
func (r *Redirect) close(pos uint64) {
	from := r.post.lo + r.first
	r.n = max(min(pos&^(shm.WordSize-1), r.post.hi), from) - from // what is to come once more has not come
	r.state, r.claim = finished, nil
	if invariant.Enabled {
		r.check()
	}
}

// settle stores a message's last word where it belongs, and ends the message's
// redirection. It returns where the word lies.
func (r *Redirect) settle(in *In, off uint64, word uint32) []byte {
	at := r.place(in, off, off+shm.WordSize)
	storeLast(at, 0, word)
	r.mu.Lock()
	if r.claim == in {
		r.close(off + shm.WordSize)
	}
	r.end = off + shm.WordSize
	if r.shared != nil { // the messages that its page counts came before this one
		r.cleared = r.shared.Claim.Messages().Load()
	}
	r.mu.Unlock()
	return at
}

// cut ends the redirection of a message that ends in its middle.
func (in *In) cut() {
	if t := in.cur.target; t != nil && t.Redirect != nil {
		t.Redirect.mu.Lock()
		in.stopRedirect()
		t.Redirect.mu.Unlock()
	}
}
