package update

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

var startTime = time.Now()

// now is a clock that costs little.
func now() int64 { return int64(time.Since(startTime)) }

// coldEvery is after how many passes over hot pages some cold ones are looked at.
const coldEvery = 8

// errInterrupted is that of a pass that its caller did not wait for.
var errInterrupted = errors.New("the pass was given up")

// pass carries over what has changed in the edges, the hot pages and a slice of the cold ones; or,
// with all, everywhere unless a goroutine waits for the lock. If a flush or a flag needs it, it
// looks everywhere while ctx lasts. The caller holds the lock.
func (b *Binding) pass(ctx context.Context, all bool) (changed bool, err error) {
	upTo := b.requested.Load()
	full := upTo != b.passed.Load()
	b.sent = false
	b.passes.Add(1)
	raised := b.loadFlags()
	full = full || raised
	if b.sendAll {
		err = b.sendAllData()
	}
	if err == nil {
		err = b.compareEdges()
	}
	if err == nil {
		err = b.compareHot()
	}
	switch {
	case err != nil:
	case full:
		err = b.scanAllCold(true, func() bool { return ctx.Err() != nil })
	case all:
		if err = b.scanAllCold(false, b.mustStop); errors.Is(err, errInterrupted) {
			err = nil
		}
	case b.lo < b.hi && (b.hot.n == 0 || b.passes.Load()%coldEvery == 0):
		err = b.scanSomeCold()
	}
	if err == nil && raised {
		err = b.publish()
		b.sendAll = false
	}
	if b.sent && (err == nil || errors.Is(err, errInterrupted)) {
		if derr := b.c.Remote.Done(); derr != nil {
			err = derr
		}
	}
	if err == nil && full && upTo > b.passed.Load() {
		b.passed.Store(upTo)
		b.c.OnPassed()
	}
	return b.sent, err
}

// mustStop reports whether a goroutine waits for the lock or for a full pass.
func (b *Binding) mustStop() bool {
	return b.waiters.Load() != 0 || b.requested.Load() != b.passed.Load() || b.ctx.Err() != nil
}

// sendAllData sends all data as the twin has it. The flags follow when all has been compared, as
// always.
func (b *Binding) sendAllData() error {
	for from := 0; from < len(b.c.Local); from += maxRun {
		to := min(from+maxRun, len(b.c.Local))
		if err := b.eachOutsideFlags(from, to, b.send); err != nil {
			return err
		}
	}
	return nil
}

func (b *Binding) compareEdges() error {
	if err := b.sendChangedData(0, b.lo); err != nil {
		return err
	}
	return b.sendChangedData(b.hi, len(b.c.Local))
}

// compareHot compares the hot pages.
func (b *Binding) compareHot() error {
	for i := range b.hot.n {
		before := b.words.Load()
		if err := b.sendChangedData(b.hot.at[i], b.hot.at[i]+shm.PageSize); err != nil {
			return err
		}
		if b.words.Load() != before {
			b.hot.changedAt[i] = now()
		}
	}
	return nil
}

// maxRun is the longest run of words, in bytes, that is put at once. So much of the twin, which
// this process stores, is still in the CPU's cache when it is sent. On the stream runs are longer
// and fewer, because the peer's reader falls asleep between two messages.
const (
	maxRun       = 256 << 10
	maxStreamRun = 1 << 20
)

// sendChangedData compares [from, to) without its flags, and sends what has changed.
func (b *Binding) sendChangedData(from, to int) error {
	return b.eachOutsideFlags(from, to, b.sendChanged)
}

// eachOutsideFlags calls do for the parts of [from, to) that are no flags.
func (b *Binding) eachOutsideFlags(from, to int, do func(from, to int) error) error {
	if fs := b.c.Flags; len(fs) > 0 {
		for _, f := range fs[sort.Search(len(fs), func(i int) bool { return fs[i].To > from }):] {
			if f.From >= to {
				break
			}
			if err := do(from, f.From); err != nil {
				return err
			}
			from = f.To
		}
	}
	return do(from, to)
}

func (b *Binding) sendChanged(from, to int) error {
	most := maxStreamRun
	if b.c.Direct {
		most = maxRun
	}
	for from < to {
		end := min(from+most, to)
		at, upTo := b.twin.Next(from, end)
		if err := b.send(at, upTo); err != nil {
			return err
		}
		from = upTo
	}
	return nil
}

// send sends what the twin has in [from, to).
func (b *Binding) send(from, to int) error {
	if from >= to {
		return nil
	}
	b.sent = true
	b.messages.Add(1)
	b.words.Add(uint64(to-from) / shm.WordSize)
	if b.heating && to-from <= shm.PageSize { // a large change is not soon followed by more
		b.hot.add(b.lo + (from-b.lo)/shm.PageSize*shm.PageSize)
	}
	return b.c.Remote.Put(b.ctx, from, b.twin.Copied(from, to))
}

// loadFlags loads all flags, and reports whether one was stored to.
func (b *Binding) loadFlags() bool {
	i, raised := 0, b.sendAll
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			b.flags[i] = b.twin.Local(off).Load()
			raised = raised || b.flags[i] != b.twin.At(off)
			i++
		}
	}
	return raised
}

// publish sends the flags that have changed, as they were loaded.
func (b *Binding) publish() error {
	i := 0
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			if v := b.flags[i]; v != b.twin.At(off) || b.sendAll {
				b.twin.Set(off, v)
				b.sent = true
				b.messages.Add(1)
				b.words.Add(1)
				if err := b.c.Remote.Publish(b.ctx, off, b.twin.Copied(off, off+shm.WordSize)); err != nil {
					return err
				}
			}
			i++
		}
	}
	return nil
}
