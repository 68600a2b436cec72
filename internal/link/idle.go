package link

import (
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/wire"
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

// creditsAfter is how often notification credits are asked for that somebody waits for. The exporter says by itself
// when it returns some, once; of a frame that was lost with nothing behind it nobody would learn, nor would anybody
// notice that an exporter says nothing which owes nothing else.
const creditsAfter = time.Second

// hunger counts who wait for notification credits of a link between nodes.
func (o *Out) hunger(more int) {
	if o.pages != nil || !o.minds {
		return
	}
	o.tmu.Lock()
	if o.hungers += more; more > 0 {
		o.tend()
	}
	o.tmu.Unlock()
}

// askForCredits does so when it is time to; tmu is held. passed is the time since the last call.
func (o *Out) askForCredits(passed time.Duration) {
	if o.hungers == 0 || o.torn.Load() {
		o.craves = false
		return
	}
	if r := o.returned.Load(); r != o.fed { // waits may be many short ones, which together bring nothing
		o.fed, o.asking = r, 0
	}
	if o.asking += passed; o.asking < creditsAfter {
		return
	}
	// A question that is not answered is not asked again where the silence is watched, which the question would break: what
	// is not acknowledged yet would be another number of bytes at each look (see listen). Nor is one put behind another.
	if (!o.craves || o.silence == 0) && o.calm() {
		o.asking, o.craves = 0, true
		o.tx.ctl = append(o.tx.ctl, wire.Header{Type: wire.Ping})
		o.pump()
	}
}

// writes says whether somebody writes now, who is not idle: to wait until he is done would have him wake a thread.
func (o *Out) writes() bool {
	if !o.tmu.TryLock() {
		return true
	}
	o.tmu.Unlock()
	return false
}

// idle asks for an acknowledgement if nothing was sent since the last time, and says
// whether anything is kept or awaited still.
func (o *Out) idle(passed time.Duration) (more bool) {
	if passed += o.busy; passed < 8*idleTick && o.writes() {
		o.busy = passed
		return true
	}
	o.busy = 0
	if o.silence > 0 {
		o.listen(passed)
	}
	o.tmu.Lock()
	defer o.tmu.Unlock()
	o.askForCredits(passed)
	written := o.written.Load()
	switch {
	case o.broken.Load():
	case o.limit == 0:
		if o.awaits() || o.mid || o.hungers > 0 {
			return true
		}
	case o.acked.Load() < o.seq.Load():
		if written == o.quiet && o.asked < written && len(o.again) == 0 && !o.torn.Load() {
			o.askNow()
			o.pump()
		}
		o.quiet = written
		return true
	case o.awaits() || o.hungers > 0: // what is acknowledged is not answered for that
		return true
	}
	o.keeps.trim(o.acked.Load())
	o.tended = false
	return false
}
