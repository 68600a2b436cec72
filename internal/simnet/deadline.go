package simnet

import (
	"sync"
	"time"
)

// deadline is one of the goroutines that wait on a condition. Its timer is of the bubble that sets
// it.
type deadline struct {
	timer  *time.Timer
	passed bool
}

// set changes it, under the condition's lock.
func (d *deadline) set(cond *sync.Cond, t time.Time) {
	d.stop()
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		d.passed = true
		cond.Broadcast()
	default:
		var own *time.Timer
		own = time.AfterFunc(wait, func() {
			cond.L.Lock()
			defer cond.L.Unlock()
			if d.timer == own { // else it was set again meanwhile
				d.passed = true
				cond.Broadcast()
			}
		})
		d.timer = own
	}
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{}
}
