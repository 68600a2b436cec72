package link

import (
	"sync"
	"time"
)

// Messages are acknowledged after many, so the last ones of a busy time would be kept for
// ever. Where nothing more comes, an acknowledgement is asked for, and then nothing is kept.
const idleTick = 10 * time.Millisecond

// idlers are the importing sides that keep anything, or to which anything is owed.
type idlers struct {
	mu   sync.Mutex
	list []*Out
	more chan struct{}
}

// tend sees to it that o does not keep what it has for ever, and does not wait for ever
// for what is owed; its tmu is held.
func (d *idlers) tend(o *Out) {
	o.tended = true
	d.mu.Lock()
	d.list = append(d.list, o)
	d.mu.Unlock()
	select {
	case d.more <- struct{}{}:
	default:
	}
}

func (d *idlers) run(stop <-chan struct{}) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-d.more:
		case <-stop:
			return
		}
		for left, last := true, time.Now(); left; {
			t.Reset(idleTick)
			select {
			case <-t.C:
			case <-stop:
				return
			}
			// A process that was stopped has not listened meanwhile.
			left = d.tick(min(time.Since(last), 10*idleTick))
			last = time.Now()
		}
	}
}

func (d *idlers) tick(passed time.Duration) (left bool) {
	d.mu.Lock()
	list := d.list
	d.list = nil
	d.mu.Unlock()
	keep := list[:0]
	for _, o := range list {
		if o.idle(passed) {
			keep = append(keep, o)
		}
	}
	d.mu.Lock() // others have come meanwhile
	d.list = append(keep, d.list...)
	left = len(d.list) > 0
	d.mu.Unlock()
	return left
}

// tend has the idlers look after the link, which keeps or awaits something; tmu is held.
func (o *Out) tend() {
	if !o.tended {
		o.e.idlers.tend(o)
	}
}

// idle asks for an acknowledgement if nothing was sent since the last time, and says
// whether anything is kept or awaited still.
func (o *Out) idle(passed time.Duration) (more bool) {
	if o.silence > 0 {
		o.listen(passed)
	}
	o.tmu.Lock()
	defer o.tmu.Unlock()
	written := o.written.Load()
	switch {
	case o.broken.Load():
	case o.limit == 0:
		if o.awaits() || o.mid {
			return true
		}
	case o.acked.Load() < o.seq.Load():
		if written == o.quiet && o.asked < written && len(o.again) == 0 && !o.torn.Load() {
			o.askNow()
			o.pump()
		}
		o.quiet = written
		return true
	case o.awaits(): // what is acknowledged is not answered for that
		return true
	}
	o.keeps.trim(o.acked.Load())
	o.tended = false
	return false
}
