package update

import (
	"context"
	"errors"
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
