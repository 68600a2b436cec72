package mpi

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Items are n items of a datatype in a buffer: what a collective sends or receives for one rank where it is
// not all values of a slice. [ItemsOf] makes them. The zero Items are none.
//
// Experimental: it may change in any release.
type Items struct {
	mem []byte
	n   int
	d   Datatype
	err error // of a buffer whose values have no memory of their own
}

// ItemsOf are n items of a datatype in a buffer of values. A call with items that are not within the buffer
// fails with [ErrBuffer], and one with values that have pointers with [ErrType].
//
// Items that are received do not overlap. Bytes between them are unchanged. Items without gaps are sent and
// received where they are, and others through a copy.
//
// Experimental: it may change in any release.
func ItemsOf[T any](buf []T, n int, d Datatype) Items {
	mem, err := bytesOf("MPI_Type", buf)
	return Items{mem, n, d, err}
}

// staged are items as bytes that follow one another.
type staged struct {
	Items
	b      []byte
	direct bool // reports whether b is their memory
}

// stage checks items. copied has a copy made in any case.
func (x Items) stage(call string, copied bool) (*staged, error) {
	if x.err != nil {
		return nil, wrapArgument(call, x.err)
	}
	if err := x.d.within(call, len(x.mem), x.n); err != nil {
		return nil, err
	}
	size, ok := product(x.n, x.d.size)
	if !ok {
		return nil, fail(call, "count", ErrCount, "%d items of %d bytes are too many", x.n, x.d.size)
	}
	s := &staged{Items: x}
	if !copied {
		if s.b = x.d.contiguous(x.mem, x.n); s.b != nil {
			s.direct = true
			return s, nil
		}
	}
	s.b = make([]byte, size)
	return s, nil
}

// wrapArgument names the call of an error of an argument.
func wrapArgument(call string, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // it is of this package
		return &Error{Call: call, Arg: e.Arg, Class: e.Class, Err: e.Err}
	}
	return err
}

// load packs the items.
func (s *staged) load() {
	if s != nil && !s.direct {
		_, _ = Pack(s.b[:0], s.mem, s.n, s.d) // stage has checked them
	}
}

// store unpacks the items.
func (s *staged) store() {
	if s != nil && !s.direct {
		s.d.scatter(s.mem, s.b)
	}
}

// stagedParts are the items of each rank.
type stagedParts []*staged

func (c *Comm) stageParts(call, arg string, xs []Items, copied bool) (stagedParts, error) {
	if len(xs) != len(c.peers) {
		return nil, fail(call, arg, ErrCount, "it has items of %d ranks, want %d", len(xs), len(c.peers))
	}
	all := make(stagedParts, len(xs))
	for i, x := range xs {
		var err error
		if all[i], err = x.stage(call, copied); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p stagedParts) load() {
	for _, s := range p {
		s.load()
	}
}

func (p stagedParts) store() {
	for _, s := range p {
		s.store()
	}
}

func (p stagedParts) of(rank int) []byte { return p[rank].b }

// matches checks that a rank receives from itself as many bytes as it sends.
func (c *Comm) matches(call string, out, in *staged) error {
	if !c.Inter() && len(out.b) != len(in.b) {
		return fail(call, "recv", ErrCount, "this rank sends itself %d bytes, and receives %d", len(out.b), len(in.b))
	}
	return nil
}

func bcastItemsPlan(c *Comm, call string, x Items, root int) plan {
	side, err := c.sideOf(call, root)
	if err != nil {
		return plan{c: c, err: err}
	}
	s, err := x.stage(call, false)
	if err != nil {
		return plan{c: c, err: err}
	}
	p := bcastPlan(c, call, s.b, root)
	switch side {
	case rootSide:
		return p.around(s.load, nil)
	case otherSide:
		return p.around(nil, s.store)
	}
	return p
}

func gatherItemsPlan(c *Comm, call string, send Items, recv []Items, root int) plan {
	side, err := c.sideOf(call, root)
	if err != nil {
		return plan{c: c, err: err}
	}
	var out *staged
	var in stagedParts
	if side == otherSide || side == rootSide && !c.Inter() {
		if out, err = send.stage(call, false); err != nil {
			return plan{c: c, err: err}
		}
	}
	if side == otherSide {
		return gatherParts(c, call, out.b, nil, root, side).around(out.load, nil)
	}
	if side == noSide {
		return gatherParts(c, call, nil, nil, root, side)
	}
	if in, err = c.stageParts(call, "recv", recv, false); err == nil && out != nil {
		err = c.matches(call, out, in[c.rank])
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	var own []byte
	if out != nil {
		own = out.b
	}
	return gatherParts(c, call, own, in.of, root, side).around(out.load, in.store)
}

func scatterItemsPlan(c *Comm, call string, send []Items, recv Items, root int) plan {
	side, err := c.sideOf(call, root)
	if err != nil {
		return plan{c: c, err: err}
	}
	var in *staged
	var out stagedParts
	if side == otherSide || side == rootSide && !c.Inter() {
		if in, err = recv.stage(call, false); err != nil {
			return plan{c: c, err: err}
		}
	}
	if side == otherSide {
		return scatterParts(c, call, nil, in.b, root, side).around(nil, in.store)
	}
	if side == noSide {
		return scatterParts(c, call, nil, nil, root, side)
	}
	if out, err = c.stageParts(call, "send", send, false); err == nil && in != nil {
		err = c.matches(call, out[c.rank], in)
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	var own []byte
	if in != nil {
		own = in.b
	}
	return scatterParts(c, call, out.of, own, root, side).around(out.load, in.store)
}

func allgatherItemsPlan(c *Comm, call string, send Items, recv []Items) plan {
	out, err := send.stage(call, false)
	if err != nil {
		return plan{c: c, err: err}
	}
	in, err := c.stageParts(call, "recv", recv, false)
	if err == nil && !c.Inter() {
		err = c.matches(call, out, in[c.rank])
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	return allgatherParts(c, call, out.b, in.of).around(out.load, in.store)
}

func alltoallItemsPlan(c *Comm, call string, send, recv []Items) plan {
	same := false
	for _, s := range send {
		for _, r := range recv {
			same = same || shm.Overlap(s.mem, r.mem)
		}
	}
	out, err := c.stageParts(call, "send", send, same)
	if err != nil {
		return plan{c: c, err: err}
	}
	in, err := c.stageParts(call, "recv", recv, false)
	if err == nil && !c.Inter() {
		err = c.matches(call, out[c.rank], in[c.rank])
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	return alltoallParts(c, call, out.of, in.of).around(out.load, in.store)
}

// BcastItems is [Bcast] of items (MPI_Bcast with a derived datatype, chapter Collective Communication). The
// ranks may give different datatypes with as many bytes.
//
// Experimental: it may change in any release.
func BcastItems(ctx context.Context, c *Comm, x Items, root int) error {
	return bcastItemsPlan(c, "MPI_Bcast", x, root).do(ctx)
}

// IbcastItems begins [BcastItems], and does not wait for it (MPI_Ibcast). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IbcastItems(c *Comm, x Items, root int) (*Request, error) {
	return bcastItemsPlan(c, "MPI_Ibcast", x, root).start()
}

// BcastItemsInit makes a [BcastItems] that is started any number of times (MPI_Bcast_init). All ranks call it, in
// the same order as other collectives.
//
// Experimental: it may change in any release.
func BcastItemsInit(c *Comm, x Items, root int) (*Persistent, error) {
	return bcastItemsPlan(c, "MPI_Bcast_init", x, root).persistent()
}

// GatherItems gives one rank the items of all (MPI_Gather and MPI_Gatherv with derived datatypes, chapter
// Collective Communication). recv has an element for each rank, and is used at root alone. What a rank
// sends has as many bytes as its element.
//
// Experimental: it may change in any release.
func GatherItems(ctx context.Context, c *Comm, send Items, recv []Items, root int) error {
	return gatherItemsPlan(c, "MPI_Gatherv", send, recv, root).do(ctx)
}

// IgatherItems begins [GatherItems], and does not wait for it (MPI_Igatherv). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IgatherItems(c *Comm, send Items, recv []Items, root int) (*Request, error) {
	return gatherItemsPlan(c, "MPI_Igatherv", send, recv, root).start()
}

// GatherItemsInit makes a [GatherItems] that is started any number of times (MPI_Gatherv_init). All ranks call it, in
// the same order as other collectives.
//
// Experimental: it may change in any release.
func GatherItemsInit(c *Comm, send Items, recv []Items, root int) (*Persistent, error) {
	return gatherItemsPlan(c, "MPI_Gatherv_init", send, recv, root).persistent()
}

// ScatterItems gives each rank its items of one rank (MPI_Scatter and MPI_Scatterv with derived datatypes,
// chapter Collective Communication). send has an element for each rank, and is used at root alone.
//
// Experimental: it may change in any release.
func ScatterItems(ctx context.Context, c *Comm, send []Items, recv Items, root int) error {
	return scatterItemsPlan(c, "MPI_Scatterv", send, recv, root).do(ctx)
}

// IscatterItems begins [ScatterItems], and does not wait for it (MPI_Iscatterv). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IscatterItems(c *Comm, send []Items, recv Items, root int) (*Request, error) {
	return scatterItemsPlan(c, "MPI_Iscatterv", send, recv, root).start()
}

// ScatterItemsInit makes a [ScatterItems] that is started any number of times (MPI_Scatterv_init). All ranks call it, in
// the same order as other collectives.
//
// Experimental: it may change in any release.
func ScatterItemsInit(c *Comm, send []Items, recv Items, root int) (*Persistent, error) {
	return scatterItemsPlan(c, "MPI_Scatterv_init", send, recv, root).persistent()
}

// AllgatherItems gives all ranks the items of all (MPI_Allgather and MPI_Allgatherv with derived datatypes,
// chapter Collective Communication). recv has an element for each rank.
//
// Experimental: it may change in any release.
func AllgatherItems(ctx context.Context, c *Comm, send Items, recv []Items) error {
	return allgatherItemsPlan(c, "MPI_Allgatherv", send, recv).do(ctx)
}

// IallgatherItems begins [AllgatherItems], and does not wait for it (MPI_Iallgatherv). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IallgatherItems(c *Comm, send Items, recv []Items) (*Request, error) {
	return allgatherItemsPlan(c, "MPI_Iallgatherv", send, recv).start()
}

// AllgatherItemsInit makes a [AllgatherItems] that is started any number of times (MPI_Allgatherv_init). All ranks call it, in
// the same order as other collectives.
//
// Experimental: it may change in any release.
func AllgatherItemsInit(c *Comm, send Items, recv []Items) (*Persistent, error) {
	return allgatherItemsPlan(c, "MPI_Allgatherv_init", send, recv).persistent()
}

// AlltoallItems gives each rank its items of each rank (MPI_Alltoallw, chapter Collective Communication).
// send and recv have an element for each rank. They may lie in the same memory (MPI_IN_PLACE).
//
// Experimental: it may change in any release.
func AlltoallItems(ctx context.Context, c *Comm, send, recv []Items) error {
	return alltoallItemsPlan(c, "MPI_Alltoallw", send, recv).do(ctx)
}

// IalltoallItems begins [AlltoallItems], and does not wait for it (MPI_Ialltoallw). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IalltoallItems(c *Comm, send, recv []Items) (*Request, error) {
	return alltoallItemsPlan(c, "MPI_Ialltoallw", send, recv).start()
}

// AlltoallItemsInit makes a [AlltoallItems] that is started any number of times (MPI_Alltoallw_init). All ranks call it, in
// the same order as other collectives.
//
// Experimental: it may change in any release.
func AlltoallItemsInit(c *Comm, send, recv []Items) (*Persistent, error) {
	return alltoallItemsPlan(c, "MPI_Alltoallw_init", send, recv).persistent()
}
