package link

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
)

// note is a notification that came over the stream. A nil target runs nothing.
type note struct {
	serial uint32
	target *Target
	off    uint64
	word   uint32
	at     []byte // where it lies
	early  bool   // it runs before its turn
}

// silent reports whether the notification runs nothing.
func (n *note) silent() bool {
	t := n.target
	return t == nil || t.Notify == nil || t.Silent != nil && t.Silent.Load()
}

// note queues a notification; the importer's credits bound the queue. One that runs nothing is done
// at once, whatever is before it: its credit does not wait for the handlers of others. rmu is held.
func (in *In) note(n note) {
	in.nmu.Lock()
	if n.silent() && !in.gaps {
		known := in.settleEarly(n.serial)
		in.nmu.Unlock()
		if !known {
			in.fail(protocol("notification %d out of its place", n.serial))
			return
		}
		in.payEarly()
		return
	}
	over := len(in.notes) >= maxNotes
	if !over {
		in.notes = append(in.notes, n)
		in.sort() // of the mapped way there may be later ones
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
	if ok {
		in.run(n)
	}
	return ok
}

// run runs the handler of the next notification.
func (in *In) run(n note) {
	if invariant.Enabled {
		in.traceNote(n)
	}
	if n.target != nil && n.target.Notify != nil {
		n.target.Notify(int(n.off), n.word, n.at)
	}
	in.nmu.Lock()
	if in.gaps {
		in.count.Late(page.Notes, 1)
	} else {
		in.count.Locked(page.Notes, 1)
	}
	if n.early {
		in.settleEarly(n.serial)
	} else if in.ran++; len(in.early) > 0 {
		in.catchUp()
	}
	ran := in.ran + in.ahead
	if invariant.Enabled {
		invariant.Check(in.gaps || n.early || len(in.early) > 0 || int32(in.ran-n.serial) >= 0, "notification %d ran as the %d.", n.serial, in.ran)
		invariant.Check(len(in.notes) <= maxNotes || in.gaps, "%d notifications are queued", len(in.notes))
	}
	if in.pages != nil && !in.broken.Load() {
		in.pages.Back.Returned().Store(ran) // the credit goes back when the handler has returned
	}
	idle := len(in.notes) == 0
	in.nmu.Unlock()
	in.repay(ran, idle)
	if b := &in.e.batch; b.some.Load() { // what the handler has sent, likely: this goroutine does not wait as others do
		b.write(nil)
	}
}

// repay tells the importer of returned credits: at once when it may be waiting, else when the goroutine of the notifications has nothing
// to look for any more. Each time costs both ends a call, and the importer a wake of its background's thread if it waits for something else.
func (in *In) repay(ran uint32, idle bool) {
	if in.pages != nil {
		if in.board.Count.Load() != 0 {
			in.ring()
		}
		return
	}
	in.tmu.Lock()
	due := ran-uint32(in.acks[1]) >= page.Credits/4
	if due {
		in.ackDue = true
		in.pump()
	}
	in.tmu.Unlock()
	if idle && !due && !in.unpaid {
		in.unpaid = true
		in.e.notes.unpaid = append(in.e.notes.unpaid, in)
	}
}

// credits is the total of credits returned.
func (in *In) credits() uint32 {
	in.nmu.Lock()
	defer in.nmu.Unlock()
	return in.ran + in.ahead
}

// span are serials from first to last.
type span struct{ first, last uint32 }

// settleEarly notes that a notification is done which may not be the next one. Between two spans is
// one at least that is not done and has a credit, so there are no more spans than credits. It
// reports whether the serial can be. nmu is held.
func (in *In) settleEarly(serial uint32) bool {
	if int32(serial-in.ran) <= 0 || len(in.early) > maxNotes {
		return false
	}
	i, there := slices.BinarySearchFunc(in.early, serial, func(s span, n uint32) int { return int(int32(s.first - n)) })
	if there || i > 0 && int32(in.early[i-1].last-serial) >= 0 {
		return false
	}
	in.early = slices.Insert(in.early, i, span{serial, serial})
	in.ahead++
	if i+1 < len(in.early) && in.early[i+1].first == serial+1 {
		in.early[i].last = in.early[i+1].last
		in.early = slices.Delete(in.early, i+1, i+2)
	}
	if i > 0 && in.early[i-1].last+1 == serial {
		in.early[i-1].last = in.early[i].last
		in.early = slices.Delete(in.early, i, i+1)
	}
	in.catchUp()
	return true
}

// catchUp moves on over what was done before its turn; nmu is held.
func (in *In) catchUp() {
	for len(in.early) > 0 && in.early[0].first == in.ran+1 {
		n := in.early[0].last - in.ran
		in.ran, in.ahead = in.ran+n, in.ahead-n
		in.early = slices.Delete(in.early, 0, 1)
	}
}

// payEarly gives back the credits of notifications that were done as they came. rmu is held, and
// nmu not.
func (in *In) payEarly() {
	in.nmu.Lock()
	paid, scarce := in.ran+in.ahead, len(in.notes) > 0
	if in.pages != nil && !in.broken.Load() {
		in.pages.Back.Returned().Store(paid)
	}
	in.nmu.Unlock()
	if in.pages != nil {
		if in.board.Count.Load() != 0 {
			in.ring()
		}
		return
	}
	in.tmu.Lock()
	if scarce || paid-uint32(in.acks[1]) >= page.Credits/4 {
		in.ackDue, in.speaks = true, true
	}
	in.tmu.Unlock()
}

// sweep is for an importer that has no credits left: what its ring holds that runs nothing is done
// now. rmu is held.
func (in *In) sweep() {
	in.nmu.Lock()
	in.collect()
	before := len(in.notes)
	in.notes = slices.DeleteFunc(in.notes, func(n note) bool {
		if !n.silent() {
			return false
		}
		return in.settleEarly(n.serial)
	})
	done := len(in.notes) < before
	in.nmu.Unlock()
	if done {
		in.payEarly()
	}
}

// wanted takes the oldest notification of an export out of its turn. rmu and nmu are not held.
func (in *In) wanted(export uint64) (n note, ok bool) {
	in.rmu.Lock()
	defer in.rmu.Unlock()
	in.nmu.Lock()
	defer in.nmu.Unlock()
	if !in.gaps {
		in.collect()
	}
	for i, n := range in.notes {
		if n.target != nil && n.target.Export == export && !n.silent() {
			in.notes = slices.Delete(in.notes, i, i+1)
			n.early = !in.gaps
			return n, true
		}
	}
	return n, false
}

// nextNote takes the note with the next serial from wherever it came. If the
// next one is not here yet (a long message of the other way is still arriving),
// its arrival will queue the link again.
func (in *In) nextNote() (note, bool) {
	in.rmu.Lock() // before the note is taken: a link that ends meanwhile forgets its targets
	defer in.rmu.Unlock()
	in.nmu.Lock()
	want := in.ran + 1
	if len(in.notes) > 0 && (in.notes[0].serial == want || in.gaps) {
		n := in.notes[0]
		in.notes = append(in.notes[:0], in.notes[1:]...)
		in.nmu.Unlock()
		return n, true
	}
	if in.pages == nil || in.gaps {
		in.nmu.Unlock()
		return note{}, false
	}
	p, ok, err := in.pages.Ring.Peek(in.head)
	if ok && p.Serial == want {
		in.head++
		in.pages.Back.Head().Store(in.head)
		in.last = in.targets[p.Handle]
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
	return resolve(p, in.targets[p.Handle]), true
}

// polled is nextNote for who polls the ring, and says how many notes were taken out of
// it. more says that some of these are not run yet: the ring has them no more. Most are about what the one before was about, and come when nothing else does:
// then nmu alone is enough, because a target that is withdrawn is not the last one any
// more, and [page.Exporter.Head] has nobody who reads it.
func (in *In) polled() (n note, head uint32, more, ok bool) {
	in.nmu.Lock()
	if t := in.last; t != nil && len(in.notes) == 0 && !in.gaps {
		p, there, _ := in.pages.Ring.Peek(in.head)
		if there && p.Serial == in.ran+1 && p.Handle == t.Handle && p.Redir == 0 {
			in.head++
			head = in.head
			in.nmu.Unlock()
			return resolve(p, t), head, false, true
		}
	}
	in.nmu.Unlock()
	n, ok = in.nextNote()
	in.nmu.Lock()
	head, more = in.head, ok && len(in.notes) > 0
	in.nmu.Unlock()
	return n, head, more, ok
}

// resolve says what a note out of the ring is about, t among the targets. The importer
// may lie: then it is about nothing, as when the import is closed.
func resolve(p page.Note, t *Target) note {
	n := note{serial: p.Serial, off: p.Off, word: p.Word}
	if t == nil || !t.Write || p.Off%4 != 0 || p.Off >= uint64(len(t.Mem)) {
		return n
	}
	n.target, n.at = t, t.Mem[p.Off:p.Off+4]
	if p.Redir != 0 && t.Redirect != nil {
		if at := t.Redirect.lies(p.Redir, p.Off); at != nil {
			n.at = at
		}
	}
	return n
}

// salvage takes what a dead importer has left in the ring, before the ring goes:
// those messages have arrived. Nothing is taken from one that broke the
// protocol. rmu is held.
func (in *In) salvage(why error) {
	in.nmu.Lock()
	defer in.nmu.Unlock()
	in.gaps, in.last = true, nil
	if isProtocol(why) {
		in.notes = nil
		return
	}
	in.collect()
	if len(in.notes) > 0 {
		in.e.notes.add(in)
	}
}

// collect takes what is in the ring to the notes of the stream, in order, while
// what it is about is known. rmu and nmu are held.
func (in *In) collect() {
	if in.pages == nil {
		return
	}
	for len(in.notes) < maxNotes { // it may go on writing, dead or not
		p, ok, err := in.pages.Ring.Peek(in.head)
		if !ok || err != nil || p.Serial-in.ran-1 >= page.Credits+in.ahead {
			break
		}
		in.head++
		in.notes = append(in.notes, resolve(p, in.targets[p.Handle]))
	}
	if !in.gaps {
		in.pages.Back.Head().Store(in.head)
	}
	in.sort()
}

func (in *In) sort() {
	slices.SortFunc(in.notes, func(a, b note) int { return int(int32(a.serial - b.serial)) })
}

// Left reports whether a link that has ended has notifications left.
func (in *In) Left() bool {
	in.nmu.Lock()
	defer in.nmu.Unlock()
	return len(in.notes) > 0
}

func (in *In) holds(export uint64) bool {
	in.nmu.Lock()
	defer in.nmu.Unlock()
	return slices.ContainsFunc(in.notes, func(n note) bool { return n.target != nil && n.target.Export == export })
}

// Pending says whether notifications of an import wait for their handler.
func (in *In) Pending(handle uint32) bool {
	in.rmu.Lock()
	t := in.targets[handle]
	in.rmu.Unlock()
	in.nmu.Lock()
	defer in.nmu.Unlock()
	for _, n := range in.notes {
		if t != nil && n.target == t {
			return true
		}
	}
	if in.pages == nil || in.gaps {
		return false
	}
	for i := range uint32(page.Credits) { // there can be more only if it writes all the while
		p, ok, err := in.pages.Ring.Peek(in.head + i)
		if !ok || err != nil {
			return false
		}
		if p.Handle == handle {
			return true
		}
	}
	return false
}
