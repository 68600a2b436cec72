package vrpc

import (
	"context"
	"time"
)

// term gives a context that lasts for at least a time from now, twice that at most. One is for many
// calls, as a context of each call's own would allocate.
type term struct {
	base  context.Context //nolint:containedctx // what all are made of
	least time.Duration   // 0: for ever
	ctx   context.Context //nolint:containedctx // the last one
	stop  context.CancelFunc
	began time.Time
}

func (t *term) context() context.Context {
	if t.least <= 0 {
		return t.base
	}
	if t.ctx == nil || time.Since(t.began) > t.least {
		t.end()
		t.began = time.Now()
		t.ctx, t.stop = context.WithTimeout(t.base, 2*t.least)
	}
	return t.ctx
}

func (t *term) end() {
	if t.stop != nil {
		t.stop()
	}
}
