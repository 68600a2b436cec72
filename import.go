package vmmc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// maxSize bounds what an exporter may claim its buffer to have.
const maxSize = 1 << 46

// Import is a handle to another process's exported memory (the manual's
// vmmc_imphandle_t). Offsets and sizes are in bytes. It lives until [Import.Close],
// the end of the export, or that of the exporter.
type Import struct {
	p      *Process
	l      *outLink
	peer   ProcessID
	id     uint32
	handle uint32
	size   int
	rights local.Rights // and [local.Unheard]

	mapped  *link.Mapped // nil: the stream way
	claims  uint32       // the number of its claims, 0 for none
	dropped sync.Once    // they were given back
	addr    ProxyAddr
	closed  atomic.Bool // by this process
	ended   atomic.Bool // cause and good are set before
	cause   atomic.Pointer[error]
	good    atomic.Uint64 // last message on the stream that can have arrived before the end

	bindings map[*Binding]struct{} // with l.mu
}

// Import imports buffer id of process pid on a node (vmmc_ImportRecvBuf). It
// waits, for as long as the context allows, until the buffer is exported; who is
// not of the exporter's user and session, see [Permit], is not always let wait.
// One buffer may be imported several times, and a process may import its own.
//
// Errors: [ErrNoSuchNode] and [ErrNoSuchProcess] at once, the latter also when
// the process ends while this waits; [ErrNoRights] at once; [ErrUnreachable] when the
// node does not answer; [ErrTimeout] when the context ends; [ErrNoPhysDestSpace]
// beyond what [WithImportLimit] allows; [ErrNoVirtDestSpace]; [ErrNoDaemon];
// [ErrClosed]; [ErrNotInHandler].
func (p *Process) Import(ctx context.Context, node NodeID, pid PID, id uint32) (*Import, error) {
	peer := ProcessID{node, pid}
	op := fmt.Sprintf("import buffer %d", id)
	if err := inHandler(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		f := fail(op, errNilContext)
		f.Peer = peer.String()
		return nil, f
	}
	im, err := p.importOver(ctx, peer, id)
	if err != nil {
		f := fail(op, err)
		f.Peer = peer.String()
		if f.Code == ErrTimeout && ctx.Err() != nil {
			f.Err = fmt.Errorf("nobody exports it, or its node does not answer: %w", err)
		}
		return nil, f
	}
	return im, nil
}

// importOver asks again where an import came to nothing because of what had a part in it: its grant went with an older
// link that was just ending, or a daemon died, and the exporter's with its connections. It does so for
// as long as a daemon that is started anew may need.
func (p *Process) importOver(ctx context.Context, peer ProcessID, id uint32) (im *Import, err error) {
	var since time.Time
	broken := 0
	for pause := time.Millisecond; ; pause = min(2*pause, lateReturn/2) {
		im, err = p.importBuffer(ctx, peer, id)
		lost := errors.As(err, new(interrupted))
		if lost {
			broken++
		}
		switch {
		case lost && broken < 4: // else it is not that a daemon has died
		case errors.Is(err, code.BadRbufState), !lost && broken > 0 && errors.Is(err, code.Unreachable):
		default:
			return im, err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > timeout.Control {
			return nil, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func (p *Process) importBuffer(ctx context.Context, peer ProcessID, id uint32) (*Import, error) {
	if err := p.usable(ctx); err != nil {
		return nil, err
	}
	l, g, fds, direct := p.askExporter(ctx, peer, id)
	if !direct {
		var err error
		if l, g, fds, err = p.askNode(ctx, peer, id); err != nil {
			return nil, err
		}
	}
	p.brought(g.Exporter, fds)
	linked := l != nil
	giveBack := func() {
		if linked {
			l.out.Detach(g.Handle)
		} else {
			p.giveBack(ctx, g)
		}
	}
	want := 0
	if g.Mapped {
		want = 1
		if g.Claims != 0 {
			want += 2 + len(g.Targets)
		}
	}
	if g.Size <= 0 || int64(g.Size) > maxSize || len(fds) != want || g.Slot >= shmlayout.Slots || !located(&g) {
		closeAll(fds)
		return nil, code.New(code.Protocol, "a grant of %d bytes with %d descriptors", g.Size, len(fds))
	}
	if err := p.imported.take(g.Size); err != nil {
		closeAll(fds)
		giveBack()
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			p.imported.give(g.Size)
		}
	}()
	if !linked {
		var err error
		if l, err = p.linkTo(ctx, g.Exporter); err != nil {
			closeAll(fds)
			giveBack()
			return nil, err
		}
	}
	if !direct && g.Lost < l.lost {
		closeAll(fds)
		l.out.Detach(g.Handle)
		return nil, code.New(code.BadRbufState, "the grant went with a link that has ended meanwhile: import again")
	}
	im := &Import{p: p, l: l, peer: peer, id: id, handle: g.Handle, size: g.Size, rights: g.Rights}
	im.good.Store(math.MaxUint64)
	if g.Mapped {
		reg, at, err := shm.OpenPart(fds[0], g.Memory, g.Offset, g.Size, g.Rights&local.MayWrite != 0)
		if err != nil {
			closeAll(fds[1:])
			l.out.Detach(g.Handle)
			return nil, err
		}
		p.keepOutOfDumps(reg)
		im.mapped = link.NewMapped(l.out, g.Handle, reg, at, g.Size, g.Slot, g.State, g.Place)
		im.mapped.Ended, im.mapped.Fast = &im.ended, g.Claims == 0 && g.Rights&local.MayWrite != 0
		im.mapped.FastNotify = im.mapped.Fast && im.heard()
		if g.Claims != 0 {
			c, err := l.takeClaims(p, &g, fds[1:])
			if err != nil {
				im.unmap()
				l.out.Detach(g.Handle)
				return nil, err
			}
			im.mapped.Claims, im.claims = c, g.Claims
		}
	}
	if err := p.dest.add(im); err != nil {
		im.unmap()
		l.out.Detach(g.Handle)
		return nil, err
	}
	if err := l.enter(im); err != nil {
		p.dest.remove(im)
		im.unmap()
		return nil, err
	}
	kept = true
	return im, nil
}

// keepOutOfDumps keeps another process's memory out of this one's core dumps, unless it is to be in them.
func (p *Process) keepOutOfDumps(r *shm.Region) {
	if p.dumps {
		return
	}
	if err := r.DontDump(); err != nil {
		p.log.Warn("imported memory will be in core dumps of this process", "why", err)
	}
}

// giveBack tells the exporter that a grant is not taken up. Without a daemon it hears nothing, and drops
// the grant when it comes back to its own, or with the link. An exporter that does not answer is told
// for timeout.Answer, and the import's caller waits for that no longer than its context lasts.
func (p *Process) giveBack(ctx context.Context, g local.Grant) {
	p.mu.Lock()
	if p.closed || !p.node.up() {
		p.mu.Unlock()
		return
	}
	over := make(chan struct{})
	p.begun.Go(func() {
		defer close(over)
		told, stop := context.WithTimeout(p.life, timeout.Answer)
		defer stop()
		_, _ = p.node.now.Load().Call(told, local.Release, local.ReleaseRequest{Exporter: g.Exporter, Handle: g.Handle}, nil, nil)
	})
	p.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Size is the buffer's length in bytes.
func (im *Import) Size() int { return im.size }

// Exporter is the process that the buffer belongs to.
func (im *Import) Exporter() ProcessID { return im.peer }

// ID is the buffer's id at its exporter.
func (im *Import) ID() uint32 { return im.id }

// heard reports whether a notification to the export may have an effect. Where it has none, no credit is taken for it.
func (im *Import) heard() bool { return im.rights&local.Unheard == 0 }

// Path is how data travels: "mapped" or "stream".
func (im *Import) Path() string {
	if im.mapped != nil {
		return "mapped"
	}
	return "stream"
}

// Close ends the import (vmmc_UnimportRecvBuf). Calls that are under way on
// other goroutines, and requests that are not over, end in an error or go nowhere:
// their memory is free when they are over. It waits neither for the exporter, which is told and
// need not answer, nor for the daemon. Closing twice is no error. In a
// notification handler it fails with [ErrNotInHandler].
func (im *Import) Close() error {
	if link.InHandler() {
		return im.failed("close import", 0, 0, code.NotInHandler)
	}
	im.closed.Store(true)
	im.l.mu.Lock()
	open := im.l.close(im)
	im.l.mu.Unlock()
	if open {
		im.p.dest.remove(im)
		im.end(link.ErrClosed, im.l.out.Cancel(im.handle))
		for _, b := range im.endBindings(link.ErrClosed) {
			_ = b.close()
		}
		im.unmap()
		im.l.out.Detach(im.handle)
		im.p.imported.give(im.size)
		im.p.log.Debug("import closed", "exporter", im.peer, "buffer", im.id)
	}
	return nil
}

// end makes every later call fail with err; those that wait, too. good is the
// last message that arrived before.
func (im *Import) end(err error, good uint64) (first bool) {
	im.l.mu.Lock()
	defer im.l.mu.Unlock()
	if im.ended.Load() {
		return false
	}
	im.good.Store(min(im.good.Load(), good))
	im.cause.Store(&err)
	im.ended.Store(true)
	im.p.engine.Wake()
	return true
}

func (im *Import) unmap() {
	if im.mapped != nil {
		im.mapped.Close()
	}
	if im.claims != 0 {
		im.dropped.Do(func() { im.l.dropClaims(im.p, im.claims) })
	}
}

// failed describes an error of an operation on the import.
func (im *Import) failed(what string, n, off int, err error) *Error {
	f := fail(fmt.Sprintf("%s %d bytes at %d of buffer %d (%d bytes)", what, n, off, im.id, im.size), err)
	f.Peer, f.Path, f.Link = im.peer.String(), im.Path(), im.l.id
	return f
}
