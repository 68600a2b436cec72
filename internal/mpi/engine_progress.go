package mpi

import (
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
)

// lookAgain is how often the progress goroutine looks while waiters poll, and how often it looks for
// ranks that have ended while it has something else to do.
const lookAgain = time.Millisecond

// progress takes what arrives while no waiter polls, and notices that a rank has ended.
func (e *Engine) progress() {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	var ws []vmmc.Watch
	var of []*peer // nil: of a module
	looked := time.Now()
	for polls := e.polls.Load(); ; {
		e.mu.Lock()
		e.pollAll()
		if now := time.Now(); now.Sub(looked) >= lookAgain {
			looked = now
			e.failEnded()
		}
		ws, of = ws[:0], of[:0]
		for _, c := range e.callees {
			ws, of = append(ws, c.Bell()), append(of, nil)
		}
		for _, pr := range *e.active.Load() {
			if pr.err == nil {
				for _, w := range pr.port.Watches() {
					ws, of = append(ws, w), append(of, pr)
				}
			}
		}
		watching := e.watching
		e.mu.Unlock()
		if e.ctx.Err() != nil {
			return
		}
		if len(ws) == 0 {
			<-watching.Done()
			continue
		}
		e.timed.Store(true)
		now := e.polls.Load()
		if now == polls && e.looking.Load() {
			e.timed.Store(false)
			e.idle.Store(true)
			if e.looking.Load() {
				select {
				case <-e.wakeUp:
				case <-e.ctx.Done():
				}
			}
			e.idle.Store(false)
			continue
		}
		if now != polls && (e.looking.Load() || e.parked.Load() == 0) {
			polls = now
			timer.Reset(lookAgain)
			select {
			case <-timer.C:
			case <-e.wakeUp:
			case <-e.ctx.Done():
			}
			e.timed.Store(false)
			continue
		}
		e.timed.Store(false)
		i, err := e.p.WaitAny(watching, ws...)
		if err == nil || watching.Err() != nil {
			continue
		}
		e.mu.Lock()
		e.pollAll() // what has arrived before the end
		pr := of[max(0, min(i, len(of)-1))]
		if pr == nil { // this process has ended
			pr = of[len(of)-1]
		}
		if pr != nil {
			if why := pr.port.Err(); why != nil {
				err = why
			}
			pr.fail(err)
		}
		e.mu.Unlock()
		if pr == nil {
			<-watching.Done()
		}
	}
}

// stopLooking ends the waiter's wait for words. The progress goroutine takes over if it sleeps until
// then, or if other waiters depend on it.
func (e *Engine) stopLooking() {
	e.looking.Store(false)
	if e.idle.Load() || e.parked.Load() > 0 {
		e.wakeProgress()
	}
}

// news reports whether a packet has arrived, or a rank has called or ended.
func (e *Engine) news() bool {
	if e.rung() {
		return true
	}
	for _, pr := range *e.active.Load() {
		if !pr.gone.Load() && (pr.port.News() || pr.port.Ended()) {
			return true
		}
	}
	return false
}

// rung reports whether a rank has called.
func (e *Engine) rung() bool {
	for _, c := range e.callees {
		if c.Rung() {
			return true
		}
	}
	return false
}

// awaiter is a module of which a goroutine takes what arrives while no waiter polls.
type awaiter struct {
	Awaiter
	timed  atomic.Bool   // reports whether the goroutine sleeps for lookAgain, or is about to
	wakeUp chan struct{} // ends that sleep
}

// await takes the packets of a module that no words tell of.
func (e *Engine) await(a *awaiter) {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	for polls := e.polls.Load(); e.ctx.Err() == nil; {
		a.timed.Store(true)
		if now := e.polls.Load(); now != polls && e.parked.Load() == 0 && !e.looking.Load() {
			polls = now
			timer.Reset(lookAgain)
			select {
			case <-timer.C:
			case <-a.wakeUp:
			case <-e.ctx.Done():
			}
			a.timed.Store(false)
		} else {
			a.timed.Store(false)
			if err := a.Await(e.ctx); err != nil {
				return // the engine or the module ends
			}
		}
		e.mu.Lock()
		e.pollAll()
		e.failEnded()
		e.mu.Unlock()
	}
}

// attend has the goroutines of modules that are awaited take what arrives, and the progress goroutine
// wait for words, unless a waiter does.
func (e *Engine) attend() {
	for _, a := range e.awaiters {
		if a.timed.Load() {
			select {
			case a.wakeUp <- struct{}{}:
			default:
			}
		}
	}
	if e.timed.Load() && !e.looking.Load() {
		e.wakeProgress()
	}
}

func (e *Engine) wakeProgress() {
	select {
	case e.wakeUp <- struct{}{}:
	default:
	}
}

// spin polls mapped memory for a while, and reports whether the wait is over.
func (e *Engine) spin(done func() bool) bool {
	e.polls.Add(1)
	e.pollers.Add(1)
	defer e.pollers.Add(-1)
	if !e.ending.Load() && e.rung() { // once: calls are few
		e.mu.Lock()
		e.pollAll()
		e.mu.Unlock()
	}
	for i := 0; i < spins && !e.ending.Load(); i++ {
		for _, a := range e.awaiters {
			a.Step()
		}
		for _, port := range *e.polled.Load() {
			if port.News() {
				e.mu.Lock()
				e.pollAll()
				e.mu.Unlock()
				break
			}
		}
		if done() {
			return true
		}
	}
	return false
}

// pollAll takes what has arrived, and sends what there is room for. mu is held.
func (e *Engine) pollAll() {
	if e.closed {
		return
	}
	for _, a := range e.awaiters {
		a.Step()
	}
	for _, c := range e.callees {
		if c.Rung() {
			c.Answer()
		}
	}
	for _, pr := range *e.active.Load() {
		if pr.err != nil || !pr.port.News() {
			continue
		}
		if err := pr.port.Poll(); err != nil {
			pr.fail(err)
			continue
		}
		pr.pump()
	}
}

// pumpAll sends what there is room for. mu is held.
func (e *Engine) pumpAll() {
	if e.closed {
		return
	}
	for _, pr := range e.peers {
		pr.pump()
	}
}
