package link

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// maxQueued bounds the notifications that an importer can queue: it has no more credits.
const maxQueued = shmlayout.Credits

// notification came over the stream or the ring. One with a nil target runs no handler.
type notification struct {
	serial    uint32
	target    *Target
	off       uint64
	word      uint32
	at        []byte // Where the word lies.
	outOfTurn bool   // It runs before earlier ones.
}

// muted reports whether the notification runs no handler.
func (n *notification) muted() bool {
	t := n.target
	return t == nil || t.Notify == nil || t.Muted != nil && t.Muted.Load()
}

// queueNotification queues a notification. The importer's credits bound the queue. One that runs no
// handler is completed at once, whatever precedes it, so its credit does not wait for other
// handlers. The caller holds rmu.
func (rs *Responder) queueNotification(n notification) {
	rs.notifyMu.Lock()
	if n.muted() && !rs.serialGaps {
		known := rs.done.complete(n.serial)
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
		rs.sortNotifications() // later ones of the mapped path may be there
	}
	rs.notifyMu.Unlock()
	if over {
		rs.fail(protocol("more than %d notifications without credit", shmlayout.Credits))
		return
	}
	rs.e.dispatcher.enqueue(rs)
}

// runNext runs the next notification of the link if it is there, and reports whether it was. A link
// has one sequence of serials for the notifications of both its paths, and they run in that order.
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
		rs.done.complete(n.serial)
	} else if rs.done.upTo++; len(rs.done.early) > 0 {
		rs.done.merge()
	}
	ran := rs.done.total()
	if invariant.Enabled {
		invariant.Check(rs.serialGaps || n.outOfTurn || len(rs.done.early) > 0 || int32(rs.done.upTo-n.serial) >= 0, "notification %d ran as the %d.", n.serial, rs.done.upTo)
		invariant.Check(len(rs.notifications) <= maxQueued || rs.serialGaps,
			"%d notifications are queued", len(rs.notifications))
	}
	if rs.pages != nil && !rs.failed.Load() {
		rs.pages.Back.Returned().Store(ran) // the credit is returned when the handler has returned
	}
	idle := len(rs.notifications) == 0
	rs.notifyMu.Unlock()
	rs.returnCredits(ran, idle)
	// likely what the handler has sent: this goroutine does not wait as others do
	if b := &rs.e.batch; b.pending.Load() {
		b.flush(nil)
	}
}

// returnCredits tells the importer of returned credits: at once when it may be waiting, otherwise
// when the dispatcher has nothing more to poll. Each time costs both ends a system call, and wakes
// the importer's background goroutine if the importer waits for something else.
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

// credits returns the total of returned credits.
func (rs *Responder) credits() uint32 {
	rs.notifyMu.Lock()
	defer rs.notifyMu.Unlock()
	return rs.done.total()
}

// doneSerials are the serials of a link's notifications that are done. Guarded by notifyMu.
type doneSerials struct {
	upTo       uint32        // All notifications up to this serial are done.
	early      []serialRange // Later ones that are done already. See complete.
	earlyCount uint32        // Number of serials in early.
}

// serialRange holds the serials from first to last.
type serialRange struct{ first, last uint32 }

// total returns the number of notifications that are done, and so the total of returned credits.
func (d *doneSerials) total() uint32 { return d.upTo + d.earlyCount }

// complete records that a notification is done which may not be the next one. Between two ranges at
// least one notification is not done and has a credit, so there are no more ranges than credits. It
// reports whether the serial is valid.
func (d *doneSerials) complete(serial uint32) bool {
	if int32(serial-d.upTo) <= 0 || len(d.early) > maxQueued {
		return false
	}
	i, there := slices.BinarySearchFunc(d.early, serial, func(s serialRange, n uint32) int { return int(int32(s.first - n)) })
	if there || i > 0 && int32(d.early[i-1].last-serial) >= 0 {
		return false
	}
	d.early = slices.Insert(d.early, i, serialRange{serial, serial})
	d.earlyCount++
	if i+1 < len(d.early) && d.early[i+1].first == serial+1 {
		d.early[i].last = d.early[i+1].last
		d.early = slices.Delete(d.early, i+1, i+2)
	}
	if i > 0 && d.early[i-1].last+1 == serial {
		d.early[i-1].last = d.early[i].last
		d.early = slices.Delete(d.early, i, i+1)
	}
	d.merge()
	return true
}

// merge moves upTo over the serials that are done already.
func (d *doneSerials) merge() {
	for len(d.early) > 0 && d.early[0].first == d.upTo+1 {
		n := d.early[0].last - d.upTo
		d.upTo, d.earlyCount = d.upTo+n, d.earlyCount-n
		d.early = slices.Delete(d.early, 0, 1)
	}
}

// returnEarlyCredits returns the credits of notifications that were completed on arrival. The
// caller holds rmu but not notifyMu.
func (rs *Responder) returnEarlyCredits() {
	rs.notifyMu.Lock()
	paid, scarce := rs.done.total(), len(rs.notifications) > 0
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

// completeMuted is called for an importer without credits: it completes the notifications in its
// ring that run no handler. The caller holds rmu.
func (rs *Responder) completeMuted() {
	rs.notifyMu.Lock()
	rs.collectRing()
	before := len(rs.notifications)
	rs.notifications = slices.DeleteFunc(rs.notifications, func(n notification) bool {
		if !n.muted() {
			return false
		}
		return rs.done.complete(n.serial)
	})
	done := len(rs.notifications) < before
	rs.notifyMu.Unlock()
	if done {
		rs.returnEarlyCredits()
	}
}

// takeForExport takes the oldest notification of an export out of order. The caller holds neither
// rmu nor notifyMu.
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

// nextNotification takes the notification with the next serial from the queue or the ring. If it is
// not here yet (a long message of the other path is still arriving), its arrival queues the link
// again.
func (rs *Responder) nextNotification() (notification, bool) {
	// before the notification is taken: a link that ends meanwhile forgets its targets
	rs.rmu.Lock()
	defer rs.rmu.Unlock()
	rs.notifyMu.Lock()
	want := rs.done.upTo + 1
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

// nextPolled is nextNotification for the ring poller. head is the number of notifications taken out
// of the ring. more reports that some of these have not run yet; the ring does not hold them any
// more. Most notifications concern the target of the one before and arrive alone. Then notifyMu
// suffices: removing a target clears lastRingTarget, and no goroutine reads
// [shmlayout.Exporter.Head] then.
func (rs *Responder) nextPolled() (n notification, head uint32, more, ok bool) {
	rs.notifyMu.Lock()
	if t := rs.lastRingTarget; t != nil && len(rs.notifications) == 0 && !rs.serialGaps {
		p, there, _ := rs.pages.Ring.Peek(rs.ringHead)
		if there && p.Serial == rs.done.upTo+1 && p.Handle == t.Handle && p.Redir == 0 {
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

// resolveTarget returns what a notification out of the ring concerns, with t among the targets. A
// dishonest importer's notification concerns nothing, as does one of a closed import.
func resolveTarget(p shmlayout.Notification, t *Target) notification {
	n := notification{serial: p.Serial, off: p.Off, word: p.Word}
	if t == nil || !t.Write || p.Off%4 != 0 || p.Off >= uint64(len(t.Mem)) {
		return n
	}
	n.target, n.at = t, t.Mem[p.Off:p.Off+4]
	if p.Redir != 0 && t.Redirect != nil {
		if at := t.Redirect.LastWordAt(p.Redir, p.Off); at != nil {
			n.at = at
		}
	}
	return n
}

// drainRing takes what a dead importer has left in the ring before the ring is released: those
// messages have arrived. It takes nothing from an importer that broke the protocol. The caller
// holds rmu.
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

// collectRing moves the ring's notifications to the queue, in order, while their targets are known,
// and queues the link: an importer that finds its notification taken does not ring for it. The
// caller holds rmu and notifyMu.
func (rs *Responder) collectRing() {
	if rs.pages == nil {
		return
	}
	before := rs.ringHead
	for len(rs.notifications) < maxQueued { // the importer may go on writing, dead or not
		p, ok, err := rs.pages.Ring.Peek(rs.ringHead)
		if !ok || err != nil || p.Serial-rs.done.upTo-1 >= shmlayout.Credits+rs.done.earlyCount {
			break
		}
		rs.ringHead++
		rs.notifications = append(rs.notifications, resolveTarget(p, rs.targets[p.Handle]))
	}
	if !rs.serialGaps {
		rs.pages.Back.Head().Store(rs.ringHead)
	}
	rs.sortNotifications()
	if rs.ringHead != before {
		rs.e.dispatcher.enqueue(rs)
	}
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

// Pending reports whether notifications of an import wait for their handler.
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
	// more are possible only if the importer keeps writing
	for i := range uint32(shmlayout.Credits) {
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
