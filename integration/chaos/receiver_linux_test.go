package chaos

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
)

// address tells the test where memory is, which looks at it when this process is dead.
func address(b []byte) uint64 { return uint64(reflect.ValueOf(b).Pointer()) }

// receiveFrom exports a buffer for each life of a sender.
func (w *worker) receiveFrom(from int) {
	var all sync.WaitGroup
	for last := 0; w.phase() != ending; time.Sleep(10 * time.Millisecond) {
		if life, _, _ := w.lives(from); life > last {
			last = life
			all.Go(func() {
				c := pair{from, life, w.process, w.life}
				if err := w.consume(c); err != nil {
					w.violated("%s: %v", c.rx(), err)
				}
			})
		}
	}
	all.Wait()
}

// conversation is its receiver's side.
type conversation struct {
	pair
	*vmmc.Export
	l        *ledger
	consumed vmmc.Word

	notified uint32 // of the handler alone: the last message that it was run for
	mu       sync.Mutex
}

// consume takes messages until the sender has gone and all that it has sent was seen, or the
// test ends.
func (w *worker) consume(c pair) error {
	l, err := openLedger(w.dir, c.rx())
	if err != nil {
		return err
	}
	defer l.close()
	m, err := w.p.Alloc(bufferSize)
	if err != nil {
		return err
	}
	v := &conversation{pair: c, l: l}
	if v.Export, err = w.p.Export(c.id(), m.Bytes(), vmmc.WithHandler(v.handle)); err != nil {
		return err
	}
	if v.consumed, err = v.Word(consumedAt); err != nil {
		return err
	}
	l.set(rxAddress, address(m.Bytes()))
	l.set(rxReady, 1)

	ctx, stop := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { w.untilGone(ctx, c, stop) })
	defer watch.Wait()
	defer stop()
	if err := v.take(ctx); err != nil {
		return err
	}
	if err := v.clean(); err != nil {
		return err
	}
	counter, err := v.Word64(counterAt)
	if err != nil {
		return err
	}
	l.set(rxCounter, counter.Load())
	l.set(rxEnd, finished)
	if err := v.Close(); err != nil {
		return err
	}
	return m.Close()
}

// untilGone calls stop when the sender has gone, or the test ends.
func (w *worker) untilGone(ctx context.Context, c pair, stop func()) {
	defer stop()
	var gone chan struct{}
	for look := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-gone:
			return
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if w.phase() == ending {
			return
		}
		if life, pid, ready := w.lives(c.from); gone == nil && ready && life == c.fromLife {
			node, err := w.p.NameToNode(nodeOf(c.from))
			if err != nil {
				w.violated("the node of process %d: %v", c.from, err)
				return
			}
			gone = w.isGone(node, pid)
		}
	}
}

// take takes message after message. When ctx has ended, what is there is taken.
func (v *conversation) take(ctx context.Context) error {
	for n := uint32(1); ; n++ {
		p := v.plan(n)
		last, err := v.Word(p.end() - 4)
		if err != nil {
			return err
		}
		got, err := last.Wait(ctx, 0)
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
			if got = last.Load(); got == 0 {
				return nil
			}
		}
		if got != n {
			return broken("where message %d was to come is %d", n, got)
		}
		if at := p.wrong(v.Bytes()[p.off:p.end()]); at >= 0 {
			return broken("message %d is wrong at byte %d of %d", n, at, p.size)
		}
		v.l.set(rxReceived, uint64(n))
		last.Store(0)
		v.consumed.Store(n)
	}
}

// handle is run for each message that notifies, once and in their order.
func (v *conversation) handle(n vmmc.Notification) {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.notified + 1
	p := v.plan(next)
	for !p.notify {
		next++
		p = v.plan(next)
	}
	if n.Word != next || n.Offset != p.end()-4 {
		v.l.say("the handler was run for message %d at %d, not for %d at %d", n.Word, n.Offset, next, p.end()-4)
		v.l.set(rxEnd, violated)
		return
	}
	v.notified = next
	v.l.set(rxNotified, v.l.get(rxNotified)+1)
}

// clean says whether a message came to a place where it had been before, or was to come
// later.
func (v *conversation) clean() error {
	places := []int{bufferSize}
	for i := range ring {
		places = append(places, ringAt+(i+1)*slot)
	}
	for _, end := range places {
		w, err := v.Word(end - 4)
		if err != nil {
			return err
		}
		if n := w.Load(); n != 0 {
			return broken("after message %d there is %d at %d", v.l.get(rxReceived), n, end-4)
		}
	}
	return nil
}
