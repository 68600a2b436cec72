package link

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// notification is a notification that came over the stream. A nil target runs nothing.
type notification struct {
	serial    uint32
	target    *Target
	off       uint64
	word      uint32
	at        []byte // where it lies
	outOfTurn bool   // it runs before its turn
}

// muted reports whether the notification runs nothing.
func (n *notification) muted() bool {
	t := n.target
	return t == nil || t.Notify == nil || t.Muted != nil && t.Muted.Load()
}

// queueNotification queues a notification; the importer's credits bound the queue. One that runs nothing is done
// at once, whatever is before it: its credit does not wait for the handlers of others. rmu is held.
func (rs *Responder) queueNotification(n notification) {
	rs.notifyMu.Lock()
	if n.muted() && !rs.serialGaps {
		known := rs.completeEarly(n.serial)
		rs.notifyMu.Unlock()
		if !known {
			rs.fail(protocol("notification %d out of its place", n.serial))
			return
		}
		rs.returnEarlyCredits()
		return
	}
	over := len(rs.notifications) >= maxQueued
	if !over {
		rs.notifications = append(rs.notifications, n)
		rs.sortNotifications() // of the mapped way there may be later ones
	}
	rs.notifyMu.Unlock()
	if over {
		rs.fail(protocol("more than %d notifications without credit", shmlayout.Credits))
		return
	}
	rs.e.dispatcher.enqueue(rs)
}

// runNext runs the next notification of the link, if it is there, and says
// whether it was. A link has one serial for the notifications of both its ways,
// and they run in its order.
func (rs *Responder) runNext() bool {
	n, ok := rs.nextNotification()
	if ok {
		rs.runHandler(n)
	}
	return ok
}

// runHandler runs the handler of the next notification.
func (rs *Responder) runHandler(n notification) {
	if invariant.Enabled {
		rs.traceNotification(n)
	}
	if n.target != nil && n.target.Notify != nil {
		n.target.Notify(int(n.off), n.word, n.at)
	}
	rs.notifyMu.Lock()
	if rs.serialGaps {
		rs.counters.AddLate(shmlayout.Notifications, 1)
	} else {
		rs.counters.AddLocked(shmlayout.Notifications, 1)
	}
	if n.outOfTurn {
		rs.completeEarly(n.serial)
	} else if rs.lastRun++; len(rs.earlyDone) > 0 {
		rs.mergeEarly()
	}
	ran := rs.lastRun + rs.earlyCount
	if invariant.Enabled {
		invariant.Check(rs.serialGaps || n.outOfTurn || len(rs.earlyDone) > 0 || int32(rs.lastRun-n.serial) >= 0, "notification %d ran as the %d.", n.serial, rs.lastRun)
		invariant.Check(len(rs.notifications) <= maxQueued || rs.serialGaps, "%d notifications are queued", len(rs.notifications))
	}
	if rs.pages != nil && !rs.failed.Load() {
		rs.pages.Back.Returned().Store(ran) // the credit goes back when the handler has returned
	}
	idle := len(rs.notifications) == 0
	rs.notifyMu.Unlock()
	rs.returnCredits(ran, idle)
	if b := &rs.e.batch; b.pending.Load() { // what the handler has sent, likely: this goroutine does not wait as others do
		b.flush(nil)
	}
}

// returnCredits tells the importer of returned credits: at once when it may be waiting, else when the goroutine of the notifications has nothing
// to look for any more. Each time costs both ends a call, and the importer a wake of its background's thread if it waits for something else.
func (rs *Responder) returnCredits(ran uint32, idle bool) {
	if rs.pages != nil {
		if rs.board.Count.Load() != 0 {
			rs.ringBell()
		}
		return
	}
	rs.tmu.Lock()
	due := ran-uint32(rs.lastAckSent[1]) >= shmlayout.Credits/4
	if due {
		rs.ackDue = true
		rs.pump()
	}
	rs.tmu.Unlock()
	if idle && !due && !rs.creditsDue {
		rs.creditsDue = true
		rs.e.dispatcher.creditsDue = append(rs.e.dispatcher.creditsDue, rs)
	}
}

// credits is the total of credits returned.
func (rs *Responder) credits() uint32 {
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	return rs.lastRun + rs.earlyCount
}

// serialRange are serials from first to last.
type serialRange struct{ first, last uint32 }

// completeEarly notes that a notification is done which may not be the next one. Between two spans is
// one at least that is not done and has a credit, so there are no more spans than credits. It
// reports whether the serial can be. notifyMu is held.
func (rs *Responder) completeEarly(serial uint32) bool {
	if int32(serial-rs.lastRun) <= 0 || len(rs.earlyDone) > maxQueued {
		return false
	}
	i, there := slices.BinarySearchFunc(rs.earlyDone, serial, func(s serialRange, n uint32) int { return int(int32(s.first - n)) })
	if there || i > 0 && int32(rs.earlyDone[i-1].last-serial) >= 0 {
		return false
	}
	rs.earlyDone = slices.Insert(rs.earlyDone, i, serialRange{serial, serial})
	rs.earlyCount++
	if i+1 < len(rs.earlyDone) && rs.earlyDone[i+1].first == serial+1 {
		rs.earlyDone[i].last = rs.earlyDone[i+1].last
		rs.earlyDone = slices.Delete(rs.earlyDone, i+1, i+2)
	}
	if i > 0 && rs.earlyDone[i-1].last+1 == serial {
		rs.earlyDone[i-1].last = rs.earlyDone[i].last
		rs.earlyDone = slices.Delete(rs.earlyDone, i, i+1)
	}
	rs.mergeEarly()
	return true
}

// waitBacklogSlow moves on over what was done before its turn; notifyMu is held.
func (rs *Responder) mergeEarly() {
	for len(rs.earlyDone) > 0 && rs.earlyDone[0].first == rs.lastRun+1 {
		n := rs.earlyDone[0].last - rs.lastRun
		rs.lastRun, rs.earlyCount = rs.lastRun+n, rs.earlyCount-n
		rs.earlyDone = slices.Delete(rs.earlyDone, 0, 1)
	}
}

// returnEarlyCredits gives back the credits of notifications that were done as they came. rmu is held, and
// notifyMu not.
func (rs *Responder) returnEarlyCredits() {
	rs.notifyMu.Lock()
	paid, scarce := rs.lastRun+rs.earlyCount, len(rs.notifications) > 0
	if rs.pages != nil && !rs.failed.Load() {
		rs.pages.Back.Returned().Store(paid)
	}
	rs.notifyMu.Unlock()
	if rs.pages != nil {
		if rs.board.Count.Load() != 0 {
			rs.ringBell()
		}
		return
	}
	rs.tmu.Lock()
	if scarce || paid-uint32(rs.lastAckSent[1]) >= shmlayout.Credits/4 {
		rs.ackDue, rs.replyPending = true, true
	}
	rs.tmu.Unlock()
}

// completeMuted is for an importer that has no credits left: what its ring holds that runs nothing is done
// now. rmu is held.
func (rs *Responder) completeMuted() {
	rs.notifyMu.Lock()
	rs.collectRing()
	before := len(rs.notifications)
	rs.notifications = slices.DeleteFunc(rs.notifications, func(n notification) bool {
		if !n.muted() {
			return false
		}
		return rs.completeEarly(n.serial)
	})
	done := len(rs.notifications) < before
	rs.notifyMu.Unlock()
	if done {
		rs.returnEarlyCredits()
	}
}

// takeForExport takes the oldest notification of an export out of its turn. rmu and notifyMu are not held.
func (rs *Responder) takeForExport(export uint64) (n notification, ok bool) {
	rs.rmu.Lock()
	defer rs.rmu.Unlock()
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	if !rs.serialGaps {
		rs.collectRing()
	}
	for i, n := range rs.notifications {
		if n.target != nil && n.target.Export == export && !n.muted() {
			rs.notifications = slices.Delete(rs.notifications, i, i+1)
			n.outOfTurn = !rs.serialGaps
			return n, true
		}
	}
	return n, false
}

// nextNotification takes the note with the next serial from wherever it came. If the
// next one is not here yet (a long message of the other way is still arriving),
// its arrival will queue the link again.
func (rs *Responder) nextNotification() (notification, bool) {
	rs.rmu.Lock() // before the note is taken: a link that ends meanwhile forgets its targets
	defer rs.rmu.Unlock()
	rs.notifyMu.Lock()
	want := rs.lastRun + 1
	if len(rs.notifications) > 0 && (rs.notifications[0].serial == want || rs.serialGaps) {
		n := rs.notifications[0]
		rs.notifications = append(rs.notifications[:0], rs.notifications[1:]...)
		rs.notifyMu.Unlock()
		return n, true
	}
	if rs.pages == nil || rs.serialGaps {
		rs.notifyMu.Unlock()
		return notification{}, false
	}
	p, ok, err := rs.pages.Ring.Peek(rs.ringHead)
	if ok && p.Serial == want {
		rs.ringHead++
		rs.pages.Back.Head().Store(rs.ringHead)
		rs.lastRingTarget = rs.targets[p.Handle]
	} else {
		ok = false
	}
	rs.notifyMu.Unlock()
	if err != nil {
		rs.fail(err)
	}
	if !ok {
		return notification{}, false
	}
	return resolveTarget(p, rs.targets[p.Handle]), true
}

// nextPolled is nextNotification for who polls the ring, and says how many notes were taken out of
// it. more says that some of these are not run yet: the ring has them no more. Most are about what the one before was about, and come when nothing else does:
// then notifyMu alone is enough, because a target that is withdrawn is not the last one any
// more, and [shmlayout.Exporter.Head] has nobody who reads it.
func (rs *Responder) nextPolled() (n notification, head uint32, more, ok bool) {
	rs.notifyMu.Lock()
	if t := rs.lastRingTarget; t != nil && len(rs.notifications) == 0 && !rs.serialGaps {
		p, there, _ := rs.pages.Ring.Peek(rs.ringHead)
		if there && p.Serial == rs.lastRun+1 && p.Handle == t.Handle && p.Redir == 0 {
			rs.ringHead++
			head = rs.ringHead
			rs.notifyMu.Unlock()
			return resolveTarget(p, t), head, false, true
		}
	}
	rs.notifyMu.Unlock()
	n, ok = rs.nextNotification()
	rs.notifyMu.Lock()
	head, more = rs.ringHead, ok && len(rs.notifications) > 0
	rs.notifyMu.Unlock()
	return n, head, more, ok
}

// resolveTarget says what a note out of the ring is about, t among the targets. The importer
// may lie: then it is about nothing, as when the import is closed.
func resolveTarget(p shmlayout.Notification, t *Target) notification {
	n := notification{serial: p.Serial, off: p.Off, word: p.Word}
	if t == nil || !t.Write || p.Off%4 != 0 || p.Off >= uint64(len(t.Mem)) {
		return n
	}
	n.target, n.at = t, t.Mem[p.Off:p.Off+4]
	if p.Redir != 0 && t.Redirect != nil {
		if at := t.Redirect.lastWordAt(p.Redir, p.Off); at != nil {
			n.at = at
		}
	}
	return n
}

// drainRing takes what a dead importer has left in the ring, before the ring goes:
// those messages have arrived. Nothing is taken from one that broke the
// protocol. rmu is held.
func (rs *Responder) drainRing(why error) {
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	rs.serialGaps, rs.lastRingTarget = true, nil
	if isProtocol(why) {
		rs.notifications = nil
		return
	}
	rs.collectRing()
	if len(rs.notifications) > 0 {
		rs.e.dispatcher.enqueue(rs)
	}
}

// collectRing takes what is in the ring to the notes of the stream, in order, while
// what it is about is known. rmu and notifyMu are held.
func (rs *Responder) collectRing() {
	if rs.pages == nil {
		return
	}
	for len(rs.notifications) < maxQueued { // it may go on writing, dead or not
		p, ok, err := rs.pages.Ring.Peek(rs.ringHead)
		if !ok || err != nil || p.Serial-rs.lastRun-1 >= shmlayout.Credits+rs.earlyCount {
			break
		}
		rs.ringHead++
		rs.notifications = append(rs.notifications, resolveTarget(p, rs.targets[p.Handle]))
	}
	if !rs.serialGaps {
		rs.pages.Back.Head().Store(rs.ringHead)
	}
	rs.sortNotifications()
}

func (rs *Responder) sortNotifications() {
	slices.SortFunc(rs.notifications, func(a, b notification) int { return int(int32(a.serial - b.serial)) })
}

// HasNotifications reports whether a link that has ended has notifications left.
func (rs *Responder) HasNotifications() bool {
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	return len(rs.notifications) > 0
}

func (rs *Responder) holdsExport(export uint64) bool {
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	return slices.ContainsFunc(rs.notifications, func(n notification) bool { return n.target != nil && n.target.Export == export })
}

// Pending says whether notifications of an import wait for their handler.
func (rs *Responder) Pending(handle uint32) bool {
	rs.rmu.Lock()
	t := rs.targets[handle]
	rs.rmu.Unlock()
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	for _, n := range rs.notifications {
		if t != nil && n.target == t {
			return true
		}
	}
	if rs.pages == nil || rs.serialGaps {
		return false
	}
	for i := range uint32(shmlayout.Credits) { // there can be more only if it writes all the while
		p, ok, err := rs.pages.Ring.Peek(rs.ringHead + i)
		if !ok || err != nil {
			return false
		}
		if p.Handle == handle {
			return true
		}
	}
	return false
}
