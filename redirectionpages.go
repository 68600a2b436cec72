package vmmc

import (
	"cmp"
	"errors"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// sharing is what the one importer that has a redirectable export mapped was
// given for it.
type sharing struct {
	peer   local.ProcessID
	number uint32
	pages  *link.Shared
	gone   atomic.Bool
}

// admitTargets checks the memories that a mapped importer may be redirected to;
// p.mu is held.
func (p *Process) admitTargets(e *Export, op string) error {
	if n := len(e.targets); n > local.MaxTargets {
		return failf(op, ErrBadArg, "%d redirection targets, there can be %d: make one large allocation a target, and redirect to parts of it", n, local.MaxTargets)
	}
	for _, m := range e.targets {
		if m == nil || m.p != p || !p.has(m) {
			return failf(op, ErrBadArg, "a redirection target is not memory of this process's Alloc")
		}
		if shm.Overlap(m.Bytes(), e.mem) || p.laid.First(m.Bytes()) != nil || m.target != nil {
			return failf(op, ErrOverlappedBufs, "a redirection target is exported, or a target of another export")
		}
		if p.bound(m.Bytes()) != nil {
			return failf(op, ErrOverlappedBufs, "a redirection target is bound to an import")
		}
	}
	return nil
}

// seal fixes the memories of an export before the first descriptor leaves:
// importers can neither shrink them under us nor, on a read-only export, write.
// All of them are looked at first, since seals cannot be taken back.
func (e *Export) seal(op string) error {
	readOnly := e.rights&local.MayWrite == 0
	var err error
	if e.memory != nil {
		err = e.memory.region.Sealable(readOnly)
	}
	for _, m := range e.targets {
		err = cmp.Or(err, m.region.Sealable(false))
	}
	if err == nil && e.memory != nil {
		err = e.memory.region.Seal(readOnly)
	}
	for _, m := range e.targets {
		if err == nil {
			err = m.region.Seal(false)
		}
	}
	if err != nil {
		return &Error{Op: op, Code: ErrBadArg, Err: err}
	}
	return nil
}

// wholeTargets says whether importers can be given all pages of the targets;
// those of a memory that was exported before may have moved (see [Export.Close]).
func (e *Export) wholeTargets() bool {
	for _, m := range e.targets {
		if !m.region.Whole() {
			return false
		}
	}
	return true
}

// has says whether m is not closed; p.mu is held.
func (p *Process) has(m *Memory) bool { return p.memories.First(m.Bytes()) == m }

// mayImport keeps a second process from a redirectable buffer; p.mu is held.
func (e *Export) mayImport(id local.ProcessID) error {
	if e.redirect == nil || e.many {
		return nil
	}
	for _, g := range e.grants {
		if g.peer.id != id {
			return code.New(code.NoRights, "buffer %d is redirectable and imported by another process already", e.id)
		}
	}
	return nil
}

// shareRedirection gives the descriptors of what a mapped importer needs beside the memory;
// p.mu is held.
func (e *Export) shareRedirection(id local.ProcessID, g *local.Grant) ([]int, error) {
	s := e.shared
	if s == nil || s.peer != id || s.gone.Load() {
		e.unshare()
		post, err := shmlayout.NewPost()
		if err != nil {
			return nil, err
		}
		claim, err := shmlayout.NewClaim()
		if err != nil {
			post.Retire()
			return nil, err
		}
		s = &sharing{peer: id, number: e.p.number(), pages: &link.Shared{Post: post, Claim: claim}}
		s.pages.LinkEnded = s.gone.Load
		for _, m := range e.targets {
			s.pages.Targets = append(s.pages.Targets, m.Bytes())
		}
		e.shared = s
		e.redirect.Share(s.pages)
	}
	regions := []*shm.Region{s.pages.Post.Region, s.pages.Claim.Region}
	for _, m := range e.targets {
		regions = append(regions, m.region)
		g.Targets = append(g.Targets, m.size)
	}
	g.Claims = s.number
	return descriptors(regions...)
}

// unshare takes the pages back from an importer that is no more; p.mu is held.
func (e *Export) unshare() {
	if s := e.shared; s != nil {
		e.shared = nil
		s.gone.Store(true)
		e.redirect.Share(nil) // which gives them back
	}
}

// importerLost is called when a link has ended; p.mu is held.
func (e *Export) importerLost(id local.ProcessID) {
	if s := e.shared; s != nil && s.peer == id {
		s.gone.Store(true)
	}
}

// endRedirection takes down what redirection needs; the importers were told.
func (e *Export) endRedirection(links []*link.Responder) error {
	if e.redirect == nil {
		return nil
	}
	e.redirect.Drop(links)
	e.p.mu.Lock()
	e.unshare()
	e.p.mu.Unlock()
	var err error
	for _, m := range e.targets {
		err = errors.Join(err, m.region.Renew("vmmc"))
	}
	return err
}

// takeClaims makes the importer's side of a redirectable export that is mapped,
// or takes the one that an earlier import of it has made. It owns fds.
func (l *outLink) takeClaims(p *Process, g *local.Grant, fds []int) (*link.Claims, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[g.Claims]; c != nil {
		closeAll(fds)
		c.users++
		return c.Claims, nil
	}
	post, err := shmlayout.OpenPost(fds[0])
	if err != nil {
		closeAll(fds[1:])
		return nil, err
	}
	claim, err := shmlayout.OpenClaim(fds[1])
	if err != nil {
		closeAll(fds[2:])
		post.Retire()
		return nil, err
	}
	c := link.NewClaims(post, claim)
	for i, fd := range fds[2:] {
		r, err := shm.Open(fd, shm.RoundUp(g.Targets[i]), true)
		if err != nil {
			closeAll(fds[3+i:])
			c.Retire()
			return nil, err
		}
		p.keepOutOfDumps(r)
		c.AddTarget(r, g.Targets[i])
	}
	if l.claims == nil { // the link has ended
		c.Retire()
		return nil, l.out.Err()
	}
	l.claims[g.Claims] = &claims{Claims: c, users: 1}
	return c, nil
}

// claims are an importer's part in a redirection, and how many imports use it.
type claims struct {
	*link.Claims
	users int
}

// dropClaims gives back what no import uses any more, once no message is on its
// way there. An import that is made meanwhile takes it over again.
func (l *outLink) dropClaims(p *Process, number uint32) {
	l.mu.Lock()
	c := l.claims[number]
	last := false
	if c != nil {
		c.users--
		last = c.users == 0
	}
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !last || p.closed { // then all of it goes with the link
		return
	}
	p.begun.Go(func() {
		c.WhenIdle(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if c.users == 0 && l.claims[number] == c {
				delete(l.claims, number)
				c.Retire()
			}
		})
	})
}
