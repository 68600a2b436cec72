package update

import (
	"context"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

var began = time.Now()

// now is a clock that costs little.
func now() int64 { return int64(time.Since(began)) }

// coldEvery is after how many passes over hot pages some cold ones are looked at.
const coldEvery = 8

// errCut is that of a pass that its caller did not wait for.
var errCut = errors.New("the pass was given up")

// pass carries over what has changed: in the edges, hot pages and a slice of the
// cold ones, or, with all, everywhere unless somebody wants the turn. If a flush or a
// flag needs it, it looks everywhere, as long as ctx lasts. The caller has the turn.
func (b *Binding) pass(ctx context.Context, all bool) (changed bool, err error) {
	upTo := b.asked.Load()
	full := upTo != b.passed.Load()
	b.put = false
	b.passes.Add(1)
	raised := b.lookAtFlags()
	full = full || raised
	if b.fresh {
		err = b.contents()
	}
	if err == nil {
		err = b.edges()
	}
	if err == nil {
		err = b.warm()
	}
	switch {
	case err != nil:
	case full:
		err = b.allCold(true, func() bool { return ctx.Err() != nil })
	case all:
		if err = b.allCold(false, b.hurried); errors.Is(err, errCut) {
			err = nil
		}
	case b.lo < b.hi && (b.hot.n == 0 || b.passes.Load()%coldEvery == 0):
		err = b.someCold()
	}
	if err == nil && raised {
		err = b.publish()
		b.fresh = false
	}
	if b.put && (err == nil || errors.Is(err, errCut)) {
		if derr := b.c.Far.Done(); derr != nil {
			err = derr
		}
	}
	if err == nil && full && upTo > b.passed.Load() {
		b.passed.Store(upTo)
		b.c.Moved()
	}
	return b.put, err
}

// hurried says that somebody waits for the turn, or for a full pass.
func (b *Binding) hurried() bool {
	return b.wanted.Load() != 0 || b.asked.Load() != b.passed.Load() || b.life.Err() != nil
}

// contents sends all data as the twin has it. The flags come when all has been
// compared, as always.
func (b *Binding) contents() error {
	for from := 0; from < len(b.c.Near); from += longest {
		to := min(from+longest, len(b.c.Near))
		if err := b.outside(from, to, b.send); err != nil {
			return err
		}
	}
	return nil
}

func (b *Binding) edges() error {
	if err := b.data(0, b.lo); err != nil {
		return err
	}
	return b.data(b.hi, len(b.c.Near))
}

// warm compares the hot pages.
func (b *Binding) warm() error {
	for i := range b.hot.n {
		before := b.words.Load()
		if err := b.data(b.hot.at[i], b.hot.at[i]+shm.PageSize); err != nil {
			return err
		}
		if b.words.Load() != before {
			b.hot.seen[i] = now()
		}
	}
	return nil
}
