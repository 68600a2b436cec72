package bench

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// notifyID is the far end's buffer with a handler.
const notifyID = 2

// confirmation is how long a confirmation is: a time, and the word that says which.
const confirmation = 12

// notify is the time from a send with a notification until its handler is entered,
// by the clock that both processes have: the far end waits all the time, or sleeps
// before each. It is the library's own goroutine that waits; another one that looks
// would be a third on two processors. What it stores to say when it was is raw memory.
func notify(ctx context.Context, e *end, size int) error {
	if _, err := e.with(ctx, job{Do: "handle"}, func() error { return nil }); err != nil {
		return err
	}
	im, err := e.p.Import(ctx, e.node, e.pid, notifyID)
	if err != nil {
		return err
	}
	for _, variant := range []string{"spinning", "asleep"} {
		n := e.count(4, 5000, 1<<30)
		pause := time.Duration(0)
		if variant == "asleep" {
			n, pause = e.count(4, 300, 1<<30), 500*time.Microsecond
		}
		signal := func(raw bool) probe {
			return func(ctx context.Context, h *hist) (float64, error) {
				j := job{Do: "signalled", Raw: raw, Mode: variant, Size: size, N: n, First: e.next(n)}
				_, err := e.with(ctx, j, func() error { return e.signals(ctx, j, im, pause, h) })
				return 0, err
			}
		}
		is := e.limitIs("a raw flag", "raw TCP, looking")
		if variant == "asleep" {
			is = e.limitIs("a raw futex wake", "raw TCP, blocking")
		}
		r := Result{What: "notify", Variant: variant, Size: size, Unit: Nanos, Count: n, LimitIs: is}
		if err := e.compare(ctx, r, signal(false), signal(true)); err != nil {
			return err
		}
	}
	return im.Close()
}

func (e *end) signals(
	ctx context.Context, j job, im *vmmc.Import, pause time.Duration, h *hist,
) error {
	src := make([]byte, j.Size)
	for v := j.First; v != j.First+uint32(j.N); v++ {
		if pause > 0 {
			unix.Nap(pause)
		}
		binary.LittleEndian.PutUint32(src[j.Size-4:], v)
		start := unix.Monotonic()
		var err error
		switch {
		case !j.Raw:
			err = im.SendNotify(ctx, src, 0)
		case e.Path == Remote:
			err = e.tcp.Send(ctx, src)
		default:
			// Beyond the confirmations, which have a cache line of their own.
			e.raw.Put(src, 256, v)
			if j.Mode == "asleep" {
				e.raw.Wake(256 + j.Size)
			}
		}
		if err != nil {
			return err
		}
		if err := e.raw.Await(ctx, confirmation, v); err != nil {
			return err
		}
		h.add(time.Duration(int64(binary.LittleEndian.Uint64(e.raw.In())) - start))
	}
	return nil
}

// handle exports the buffer with a handler.
func handle(ctx context.Context, e *end, _ job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	m, err := e.p.Alloc(e.inbox())
	if err != nil {
		return nil, err
	}
	e.over = make(chan struct{}, 1)
	e.handled, err = e.p.Export(notifyID, m.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) {
		e.confirm(unix.Monotonic(), n.Word)
		if n.Word == e.final.Load() {
			e.over <- struct{}{}
		}
	}))
	return nil, err
}

// confirm says when something was seen.
func (e *end) confirm(at int64, v uint32) {
	var b [confirmation]byte
	binary.LittleEndian.PutUint64(b[:], uint64(at))
	e.raw.Put(b[:], 0, v)
}

// signalled is the far end of notify.
func signalled(ctx context.Context, e *end, j job) ([]float64, error) {
	seen, last := e.handled.Notified(), e.handled.Notified()+uint64(j.N)
	waits := !j.Raw && j.Mode != "asleep"
	if e.final.Store(0); waits {
		e.final.Store(j.First + uint32(j.N) - 1)
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	if waits {
		select {
		case <-e.over:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !j.Raw {
		for seen < last {
			var err error
			if j.Mode == "asleep" {
				seen, err = e.handled.WaitNotified(ctx, seen)
			} else {
				err = e.waitBriefly(ctx, func() bool { return e.handled.Notified() != seen })
				seen = e.handled.Notified()
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	b := make([]byte, j.Size)
	for v := j.First; v != j.First+uint32(j.N); v++ {
		var err error
		switch {
		case e.Path == Remote && j.Mode == "asleep":
			err = e.tcp.ReceiveBlocking(ctx, b)
		case e.Path == Remote:
			err = e.tcp.Receive(ctx, b)
		case j.Mode == "asleep":
			err = e.raw.Sleep(ctx, 256+j.Size, v)
		default:
			err = e.raw.Await(ctx, 256+j.Size, v)
		}
		if err != nil {
			return nil, err
		}
		e.confirm(unix.Monotonic(), v)
	}
	return nil, nil
}
