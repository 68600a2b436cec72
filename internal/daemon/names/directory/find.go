package directory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Lookup finds the owners of a name and calls try with one after the other, until it returns nil
// or an error that is none of these: [names.ErrAbsent] of an owner that has the name no more, and
// [ErrNextOwner] to have the next one of a set tried. With wait it waits for an owner; otherwise it
// returns names.ErrAbsent where there is none.
func (d *Directory) Lookup(
	ctx context.Context, k Key, wait bool, try func(context.Context, Registration) error,
) error {
	q := Query{Key: k, Wait: wait}
	var denied []Registration // to a look-up that does not wait
	for pause := time.Millisecond; ; pause = min(2*pause, maxClaimPause) {
		owners, err := d.ask(ctx, q)
		if err != nil {
			return err
		}
		q.Stale = nil
		var last error
		for _, r := range owners {
			err := try(ctx, r)
			switch {
			case err == nil:
				return nil
			case errors.Is(err, names.ErrAbsent):
				// Answered again, the directory node cannot ask the owner's.
				if again := slices.Contains(denied, r); !again {
					q.Stale = append(q.Stale, r)
				}
			case errors.Is(err, ErrNextOwner):
				last = err
			default:
				return err
			}
		}
		if !wait && last != nil {
			return last
		}
		if !wait && len(q.Stale) == 0 {
			return names.ErrAbsent
		}
		if !wait {
			denied = append(denied, q.Stale...)
		}
		if len(owners) > 0 && !timeout.Sleep(ctx, pause) || ctx.Err() != nil {
			if last != nil {
				return last
			}
			return ctxError(ctx, k)
		}
	}
}

// ErrNextOwner is wrapped by the error of an owner that does not answer, if the next one of its set
// is to be tried.
var ErrNextOwner = errors.New("the next one of the set has its turn")

// ask asks the directory nodes in turn, until one knows. A look-up that does not wait takes the word
// of a majority that there is no owner: the one that is asked first may have missed the claim.
func (d *Directory) ask(ctx context.Context, q Query) ([]Registration, error) {
	late := time.Now().Add(timeout.Control)
	for {
		view, _ := d.View()
		set := view.Set(q.Key)
		var without refusals
		absent := 0
		for _, node := range set {
			a, err := d.findAt(ctx, node, q)
			switch {
			case ctx.Err() != nil:
				return nil, ctxError(ctx, q.Key)
			case err != nil:
				without.add(node, err.Error(), d.cfg.Older(err), false)
			case a.Outcome == Registered:
				return a.Owners, nil
			case a.Outcome == Absent:
				if absent++; absent >= quorum(set) {
					return nil, nil
				}
			case a.Outcome == Full:
				return nil, code.New(code.NoMem, "node %q: %s", node, a.Reason)
			default:
				without.add(node, a.Reason, false, true)
			}
		}
		if now, _ := d.View(); now.Digest == view.Digest && !without.passing || time.Now().After(late) {
			return nil, without.err(q.Key, set)
		}
		if !timeout.Sleep(ctx, minPause) {
			return nil, ctxError(ctx, q.Key)
		}
	}
}

// findAt asks one directory node, which may be this one.
func (d *Directory) findAt(ctx context.Context, node string, q Query) (Answer, error) {
	if node == d.cfg.Node {
		return d.Find(ctx, q), nil
	}
	if !q.Wait {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, 3*patience)
		defer stop()
	}
	return d.cfg.Net.Find(ctx, node, q)
}
