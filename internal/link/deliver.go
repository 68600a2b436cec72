package link

import (
	"github.com/vmmc-go/vmmc/internal/page"
)

// note is a notification that came over the stream. A nil target runs nothing.
type note struct {
	serial uint32
	target *Target
	off    uint64
	word   uint32
}

// note queues a notification; the importer's credits bound the queue.
func (in *In) note(n note) {
	in.nmu.Lock()
	over := len(in.notes) >= maxNotes
	if !over {
		in.notes = append(in.notes, n)
	}
	in.nmu.Unlock()
	if over {
		in.fail(protocol("more than %d notifications without credit", page.Credits))
		return
	}
	in.e.notes.add(in)
}

// deliver runs the next notification of the link, if it is there, and says
// whether it was. A link has one serial for the notifications of both its ways,
// and they run in its order.
func (in *In) deliver() bool {
	n, ok := in.nextNote()
	if !ok {
		return false
	}
	if n.target != nil && n.target.Notify != nil {
		n.target.Notify(int(n.off), n.word)
	}
	in.nmu.Lock()
	in.ran++
	ran := in.ran
	if in.pages != nil && !in.broken.Load() {
		in.pages.Back.Returned().Store(ran) // the credit goes back when the handler has returned
	}
	idle := len(in.notes) == 0
	in.nmu.Unlock()
	in.repay(ran, idle)
	return true
}

// repay tells the importer of returned credits: at once when it may be waiting.
func (in *In) repay(ran uint32, idle bool) {
	if in.pages != nil {
		if in.pages.Peer.Sleepers().Load() != 0 {
			in.ring()
		}
		return
	}
	in.tmu.Lock()
	if idle || ran-uint32(in.acks[1]) >= page.Credits/4 {
		in.ackDue = true
		in.pump()
	}
	in.tmu.Unlock()
}

// credits is the total of credits returned.
func (in *In) credits() uint32 {
	in.nmu.Lock()
	defer in.nmu.Unlock()
	return in.ran
}

// nextNote takes the note with the next serial from wherever it came. If the
// next one is not here yet (a long message of the other way is still arriving),
// its arrival will queue the link again.
func (in *In) nextNote() (note, bool) {
	in.nmu.Lock()
	want := in.ran + 1
	if len(in.notes) > 0 && in.notes[0].serial == want {
		n := in.notes[0]
		in.notes = append(in.notes[:0], in.notes[1:]...)
		in.nmu.Unlock()
		return n, true
	}
	if in.pages == nil {
		in.nmu.Unlock()
		return note{}, false
	}
	p, ok, err := in.pages.Ring.Peek(in.head)
	if ok && p.Serial == want {
		in.head++
		in.pages.Back.Head().Store(in.head)
	} else {
		ok = false
	}
	in.nmu.Unlock()
	if err != nil {
		in.fail(err)
	}
	if !ok {
		return note{}, false
	}
	in.rmu.Lock()
	t := in.targets[p.Handle]
	in.rmu.Unlock()
	n := note{serial: p.Serial, off: p.Off, word: p.Word}
	if t != nil && t.Write && p.Off%4 == 0 && p.Off < uint64(len(t.Mem)) { // else closed, or an importer that lies
		n.target = t
	}
	return n, true
}
