package vmmc

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// WaitWord is [Word.Wait] for an answer that the import's exporter is to send: it also returns when the
// import ends, with the error that calls on it return from then on. w is a word of an export of the
// process that imported. If both come together it is the word that is returned.
func (im *Import) WaitWord(ctx context.Context, w Word, old uint32) (uint32, error) {
	const op = "wait for an answer"
	switch {
	case link.InHandler():
		return old, failf(op, ErrNotInHandler, "%v", ErrNotInHandler)
	case ctx == nil:
		return old, fail(op, errNilContext)
	case w.w == nil:
		return old, failf(op, ErrBadArg, "the word is of no export: Export.Word gives words")
	case w.p != im.p:
		return old, failf(op, ErrBadArg, "the word is another process's")
	}
	if v := w.w.Load(); v != old {
		return v, nil
	}
	l := wait.Cond{Word: w.w, Old: old, Addr: w.place, Ended: &im.ended, Failed: im.l.out.Ended()}
	if err := im.p.engine.Wait(ctx, l); err != nil {
		f := fail(op, err)
		f.Peer = im.peer.String()
		return old, f
	}
	if v := w.w.Load(); v != old {
		return v, nil
	}
	err := im.alive()
	if err == nil {
		err = im.l.out.Err()
	}
	f := fail(op, err)
	f.Peer = im.peer.String()
	return old, f
}
