package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// fort is what a hostile exporter gives with a grant of a redirectable buffer.
type fort struct {
	mem, target *shm.Region
	post        shmlayout.Post
	claim       shmlayout.Claim
	other       *shm.Region // sealed, and of the size of all of these
	loose       *shm.Region // not sealed
	fixed       *shm.Region // sealed against writing
}

func newFort(t testing.TB) *fort {
	t.Helper()
	f := &fort{}
	sealed := func(readOnly bool, pages int) *shm.Region {
		r, err := shm.New("test", pages*shm.PageSize, readOnly)
		if err == nil {
			err = r.Seal(readOnly)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Retire)
		return r
	}
	f.mem, f.target, f.other, f.fixed = sealed(false, 4), sealed(false, 2), sealed(false, 1), sealed(true, 2)
	var err error
	if f.loose, err = shm.New("test", 2*shm.PageSize, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.loose.Retire)
	if f.post, err = shmlayout.NewPost(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.post.Retire)
	if f.claim, err = shmlayout.NewClaim(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.claim.Retire)
	for i := range f.mem.Bytes() {
		f.mem.Bytes()[i] = guard
	}
	for i := range f.target.Bytes() {
		f.target.Bytes()[i] = guard
	}
	return f
}

// grant is an honest one: of a buffer and a target that lie within their memories.
func (f *fort) grant() nodeproto.Grant {
	return nodeproto.Grant{
		Handle: 1, Size: 2*shm.PageSize + 64, Rights: nodeproto.MayRead | nodeproto.MayWrite,
		Mapped: true, Memory: f.mem.Size(), Offset: shm.PageSize / 2, State: 0,
		Claims: 5, Targets: []int{f.target.Size() - 64},
	}
}

// give is what comes with it.
func (f *fort) give(t testing.TB) []int {
	return f.these(t, f.mem, f.post.Region, f.claim.Region, f.target)
}

func (f *fort) these(t testing.TB, rs ...*shm.Region) (fds []int) {
	for _, r := range rs {
		fds = append(fds, descriptor(t, r))
	}
	return fds
}

// A grant that does not hold together is an error of the import, which says whose
// fault it is; nothing of it stays open, and what it was imported into lives.
func TestHostileGrants(t *testing.T) {
	w := newVictim(t)
	f := newFort(t)
	type gift struct {
		grant func(*nodeproto.Grant)
		fds   func() []int // nil: as they should be
	}
	with := func(rs ...*shm.Region) func() []int { return func() []int { return f.these(t, rs...) } }
	post, claim := f.post.Region, f.claim.Region
	socket := func() []int {
		a, b, err := unix.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(b)
		return append(f.these(t, f.mem, post, claim), a)
	}
	many := func() (rs []*shm.Region) {
		rs = []*shm.Region{f.mem, post, claim}
		for range nodeproto.MaxTargets {
			rs = append(rs, f.target)
		}
		return rs
	}
	for name, c := range map[string]gift{
		"no descriptors":              {fds: func() []int { return nil }},
		"the memory alone":            {fds: with(f.mem)},
		"no target":                   {fds: with(f.mem, post, claim)},
		"a target too many":           {fds: with(f.mem, post, claim, f.target, f.target)},
		"redirection without memory":  {grant: func(g *nodeproto.Grant) { g.Mapped = false }, fds: with(post, claim, f.target)},
		"the same with all of them":   {grant: func(g *nodeproto.Grant) { g.Mapped = false }},
		"targets without pages":       {grant: func(g *nodeproto.Grant) { g.Claims = 0 }},
		"targets, and nothing else":   {grant: func(g *nodeproto.Grant) { g.Claims = 0 }, fds: with(f.mem, f.target)},
		"the pages exchanged":         {fds: with(f.mem, claim, post, f.target)},
		"memory for the post page":    {fds: with(f.mem, f.other, claim, f.target)},
		"memory for the claim page":   {fds: with(f.mem, post, f.other, f.target)},
		"the post page twice":         {fds: with(f.mem, post, post, f.target)},
		"another order":               {fds: with(f.target, post, claim, f.mem)},
		"backwards":                   {fds: with(f.target, claim, post, f.mem)},
		"an unsealed target":          {fds: with(f.mem, post, claim, f.loose)},
		"a read-only target":          {fds: with(f.mem, post, claim, f.fixed)},
		"a target that is too small":  {fds: with(f.mem, post, claim, f.other)},
		"a target that is too large":  {fds: with(f.mem, post, claim, f.mem)},
		"a socket for a target":       {fds: socket},
		"a target of no size":         {grant: func(g *nodeproto.Grant) { g.Targets[0] = 0 }},
		"a target of less":            {grant: func(g *nodeproto.Grant) { g.Targets[0] = -shm.PageSize }},
		"a target of everything":      {grant: func(g *nodeproto.Grant) { g.Targets[0] = math.MaxInt }},
		"the second target missing":   {grant: func(g *nodeproto.Grant) { g.Targets = append(g.Targets, 64) }, fds: with(f.mem, post, claim, f.target, f.loose)},
		"more targets than there are": {grant: func(g *nodeproto.Grant) { g.Targets = make([]int, 1000) }},
		"as many as come, too large":  {grant: func(g *nodeproto.Grant) { g.Targets = make([]int, nodeproto.MaxTargets) }, fds: with(many()...)},
		"unsealed memory":             {grant: func(g *nodeproto.Grant) { g.Memory, g.Size = f.loose.Size(), 64 }, fds: with(f.loose, post, claim, f.target)},
		"read-only memory":            {grant: func(g *nodeproto.Grant) { g.Memory, g.Size = f.fixed.Size(), 64 }, fds: with(f.fixed, post, claim, f.target)},
		"less memory than it says":    {grant: func(g *nodeproto.Grant) { g.Memory += shm.PageSize }},
		"more memory than it says":    {grant: func(g *nodeproto.Grant) { g.Memory -= shm.PageSize; g.Size = 64 }},
		"half a page of memory":       {grant: func(g *nodeproto.Grant) { g.Memory -= shm.PageSize / 2 }},
		"a buffer over the end":       {grant: func(g *nodeproto.Grant) { g.Offset = g.Memory - g.Size + 4 }},
		"a buffer before it":          {grant: func(g *nodeproto.Grant) { g.Offset = -4 }},
		"a buffer far behind":         {grant: func(g *nodeproto.Grant) { g.Offset = math.MaxInt &^ 3 }},
		"an odd buffer":               {grant: func(g *nodeproto.Grant) { g.Offset++ }},
		"no size":                     {grant: func(g *nodeproto.Grant) { g.Size = 0 }},
		"less than no size":           {grant: func(g *nodeproto.Grant) { g.Size = math.MinInt }},
		"more than all memory":        {grant: func(g *nodeproto.Grant) { g.Size, g.Memory = math.MaxInt, math.MaxInt }},
		"too long a label":            {grant: func(g *nodeproto.Grant) { g.Label = make([]byte, nodeproto.MaxLabel+1) }},
		"a slot that is not":          {grant: func(g *nodeproto.Grant) { g.Slot = shmlayout.Slots }},
	} {
		t.Run(name, func(t *testing.T) {
			y := newHostileExporter(t, w.socket, honestly)
			g := f.grant()
			if c.grant != nil {
				c.grant(&g)
			}
			y.gives(func() (nodeproto.Grant, []int) {
				if c.fds != nil {
					return g, c.fds()
				}
				return g, f.give(t)
			})
			p := join(t, w.socket)
			im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
			if err == nil {
				t.Fatalf("imported as %s", im.Path())
			}
			if !errors.Is(err, vmmc.ErrProtocol) {
				t.Errorf("%v, want %v", err, vmmc.ErrProtocol)
			}
			if _, err := p.Import(t.Context(), w.b.Node(), w.b.PID(), 6); err != nil {
				t.Errorf("import from an honest process: %v", err)
			}
			y.gives(func() (nodeproto.Grant, []int) { return f.grant(), f.give(t) })
			im, err = p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
			if err != nil {
				t.Fatalf("what holds together: %v", err)
			}
			if err := im.Send(t.Context(), word, 0); err != nil || im.Path() != vmmc.PathMapped {
				t.Errorf("%s: %v", im.Path(), err)
			}
			w.goesOn(t)
		})
	}
}

// One handle for two imports would let the end of one pass for the other's.
func TestOneHandleTwice(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	f := newFort(t)
	y.gives(func() (nodeproto.Grant, []int) { return f.grant(), f.give(t) })
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(w.socket), vmmc.WithImportLimit(3*int64(f.grant().Size)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	im, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // and nothing is counted as imported
		if _, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7); !errors.Is(err, vmmc.ErrProtocol) {
			t.Fatalf("the second with the same handle: %v, want %v", err, vmmc.ErrProtocol)
		}
	}
	if err := im.Send(t.Context(), word, 0); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := im.Close(); err != nil {
		t.Error(err)
	}
	if im, err = p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7); err != nil {
		t.Fatalf("when the first is closed: %v", err)
	}
	if err := im.Send(t.Context(), word, 0); err != nil {
		t.Error(err)
	}
}

// An exporter that says on the link that an import is over, and on its page that the export lives,
// is taken at its word: nothing more is stored into its memory.
func TestEndIsToldOnTheLinkAlone(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	f := newFort(t)
	y.gives(func() (nodeproto.Grant, []int) {
		g := f.grant()
		g.Claims, g.Targets = 0, nil
		return g, f.these(t, f.mem)
	})
	p := join(t, w.socket)
	im, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	r := <-y.accepted
	if err := im.Send(t.Context(), word, 0); err != nil || im.Path() != vmmc.PathMapped {
		t.Fatalf("on the %s way: %v", im.Path(), err)
	}
	if err := r.say(t, frame(wire.Header{Type: wire.Revoke, Handle: 1, Word: wire.CodeRevoked}, nil)); err != nil {
		t.Fatal(err)
	}
	send := func() error { return im.Send(t.Context(), word, 0) }
	if err := eventually(t, send); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("after its end: %v, want %v", err, vmmc.ErrRevoked)
	}
	f.mem.Bytes()[f.grant().Offset] = guard
	if err := send(); !errors.Is(err, vmmc.ErrRevoked) || f.mem.Bytes()[f.grant().Offset] != guard {
		t.Errorf("once more: %v, want %v; and its memory was written", err, vmmc.ErrRevoked)
	}
}

// acknowledge acknowledges all messages that the importer streams, and stores none of them,
// until the link ends or stop is set.
func (r *hostileLink) acknowledge(stop *atomic.Bool) error {
	var all []byte
	b := make([]byte, 1<<16)
	for frames := uint32(0); !stop.Load(); {
		n, err := r.io.Recv(r.fd, b, nil)
		if err != nil {
			return err
		}
		if n == 0 {
			unix.Yield()
			continue
		}
		all = append(all, b[:n]...)
		ack := wire.Header{Type: wire.Ack}
		for len(all) >= wire.HeaderSize {
			var h wire.Header
			if err := h.Parse(all, frames); err != nil {
				return err
			}
			if len(all) < wire.HeaderSize+int(h.Chunk) {
				break
			}
			frames, all = frames+1, all[wire.HeaderSize+int(h.Chunk):]
			if h.Type == wire.Abort || h.Type == wire.Data && h.Flags&wire.Last != 0 {
				ack.Ack = h.Seq
			}
		}
		if ack.Ack == 0 {
			continue
		}
		for out := r.said.in(frame(ack, nil)); len(out) > 0 && !stop.Load(); {
			n, err := r.io.Send(r.fd, out, nil)
			if err != nil {
				return err
			}
			out = out[n:]
		}
	}
	return nil
}

// newRedirecting makes a hostile exporter that grants a redirectable export, f.
func newRedirecting(t *testing.T) (w *victim, y *hostileExporter, f *fort) {
	t.Helper()
	w = newVictim(t)
	y, f = newHostileExporter(t, w.socket, honestly), newFort(t)
	y.gives(func() (nodeproto.Grant, []int) { return f.grant(), f.give(t) })
	return w, y, f
}

// An exporter that has the importer use the stream, and acknowledges nothing there, holds up
// the sends to itself, and none of them beyond its context.
func TestPostsByStreamUnacknowledged(t *testing.T) {
	w, y, f := newRedirecting(t)
	p := join(t, w.socket)
	im := y.imported(t, p)
	near, err := p.Import(t.Context(), w.b.Node(), w.b.PID(), 6)
	if err != nil {
		t.Fatal(err)
	}
	f.post.Low().Store(0)
	f.post.High().Store(64)
	f.post.Target().Store(shmlayout.ByStream)
	f.post.State().Store(shmlayout.Posted(1))
	beside := func(ctx context.Context) error { return im.Send(ctx, word, 128) }
	write := func(ctx context.Context) error { _, err := im.WriteAtContext(ctx, word, 0); return err }
	for _, c := range []struct {
		name string
		send func(context.Context) error
		want error
	}{
		{"a send beside the range", beside, nil},
		{"a write", write, nil}, // which is not redirected
		{"a send", func(ctx context.Context) error { return im.Send(ctx, word, 0) }, vmmc.ErrTimeout},
		{"a send of two parts", func(ctx context.Context) error { return im.SendV(ctx, [][]byte{word, word}, 0) }, vmmc.ErrTimeout},
		{"a notification", func(ctx context.Context) error { return im.SendNotify(ctx, word, 0) }, vmmc.ErrTimeout},
		{"a request", func(ctx context.Context) error {
			r, err := im.SendAsync(ctx, word, 0)
			if err != nil {
				return err
			}
			return r.Wait(ctx)
		}, vmmc.ErrTimeout},
		{"a send beside the range after them", beside, vmmc.ErrTimeout},
		{"a write after them", write, vmmc.ErrTimeout},
	} {
		ctx, stop := within(t), func() {}
		if c.want != nil {
			ctx, stop = context.WithTimeout(t.Context(), 10*time.Millisecond)
		}
		if err := c.send(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		stop()
		if err := near.Send(within(t), word, 0); err != nil {
			t.Errorf("%s, then to an honest exporter: %v", c.name, err)
		}
	}
	if err := im.Close(); err != nil {
		t.Error(err)
	}
	w.goesOn(t)
}

// Whatever an exporter posts, and however it changes its mind meanwhile: the
// importer writes into the buffer and the targets that it was given, and goes on.
// The exporter acknowledges what it has the importer send by the stream: without that
// a send waits until its context ends, see [TestPostsByStreamUnacknowledged].
func TestHostilePosts(t *testing.T) {
	w, y, f := newRedirecting(t)
	p := join(t, w.socket)
	im := y.imported(t, p)
	g := f.grant()
	all := pattern(g.Size, 3)
	for i := 0; i < len(all); i += 4 {
		all[i] &^= 0x80 // no word is one of guard bytes
	}
	var stop, taken atomic.Bool
	var wg sync.WaitGroup
	figures := []uint64{0, 4, 64, 2, uint64(g.Size) - 4, uint64(g.Size), uint64(g.Targets[0]), uint64(g.Targets[0]) - 64, 1 << 20, 1<<46 - 4, 1 << 46, 1 << 63, ^uint64(3), ^uint64(0)}
	scrawl := func(rng *rand.Rand, gen uint32) {
		some := func() uint64 { return figures[rng.IntN(len(figures))] }
		f.post.Low().Store(some())
		f.post.High().Store(some())
		f.post.Offset().Store(some())
		f.post.Target().Store([]uint32{0, 0, 0, 1, 1 << 31, shmlayout.ByStream}[rng.IntN(6)])
		f.post.State().Store([]uint32{shmlayout.Posted(gen), shmlayout.Posted(gen), shmlayout.Ending(gen), 0, 1, rng.Uint32()}[rng.IntN(6)])
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for gen := uint32(1); !stop.Load(); gen++ {
			scrawl(rng, gen%shmlayout.Generations)
			f.claim.Claimed().Store(rng.Uint32())
			f.claim.Messages().Store(rng.Uint64())
			if gen%64 == 0 { // one that is in order, for long enough to be taken
				f.post.Low().Store(64)
				f.post.High().Store(uint64(g.Targets[0]))
				f.post.Offset().Store(64)
				f.post.Target().Store(0)
				f.post.State().Store(shmlayout.Posted(gen))
				for i := 0; i < 1000 && !stop.Load() && f.claim.Claimed().Load() != gen; i++ {
					unix.Yield()
				}
				if f.claim.Claimed().Load() == gen {
					taken.Store(true)
				}
			}
		}
	})
	r := <-y.accepted
	wg.Go(func() {
		if err := r.acknowledge(&stop); err != nil {
			t.Errorf("the stream: %v", err)
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	rng := rand.New(rand.NewPCG(3, 4))
	ctx := within(t)
	for i := 0; i < 3000 || !taken.Load(); i++ { // the goroutine that posts may not have run yet
		n := 4 + 4*rng.IntN(g.Size/4)
		off := 4 * rng.IntN((g.Size-n)/4+1)
		src := all[off : off+n]
		var err error
		switch i % 5 {
		case 0:
			err = im.Send(ctx, src, off)
		case 1:
			err = im.SendV(ctx, [][]byte{src[:n/8*4], src[n/8*4:]}, off)
		case 2:
			var r vmmc.Request
			if r, err = im.SendAsync(ctx, src, off); err == nil {
				err = r.Wait(ctx)
			}
		case 3:
			_, err = im.WriteAtContext(ctx, src, off)
		case 4:
			short, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(100))*time.Microsecond)
			if err = im.Send(short, src, off); errors.Is(err, vmmc.ErrTimeout) {
				err = nil
			}
			cancel()
		}
		if err != nil {
			t.Fatalf("message %d, %d bytes at %d: %v", i, n, off, err)
		}
	}
	for what, b := range map[string][]byte{
		"before the buffer": f.mem.Bytes()[:g.Offset], "behind the buffer": f.mem.Bytes()[g.Offset+g.Size:],
		"behind the target": f.target.Bytes()[g.Targets[0]:],
	} {
		for i := range b {
			if b[i] != guard {
				t.Fatalf("%s byte %d has changed", what, i)
			}
		}
	}
	untouched := true
	for i := 0; i < g.Targets[0]; i += 4 {
		untouched = untouched && binary.LittleEndian.Uint32(f.target.Bytes()[i:]) == guard*0x01010101
	}
	if untouched {
		t.Error("nothing was ever redirected: nothing was tested")
	}
	w.goesOn(t)
}

// An exporter that never ends what it has posted, or ends it in the middle of each
// message, delays no other process.
func TestPostsThatChange(t *testing.T) {
	w, y, f := newRedirecting(t)
	p := join(t, w.socket)
	im := y.imported(t, p)
	g := f.grant()
	f.post.Low().Store(0)
	f.post.High().Store(uint64(g.Targets[0]))
	for gen := uint32(1); gen < 50; gen++ {
		f.post.State().Store(shmlayout.Posted(gen))
		for range 3 { // one is redirected, the others go to the buffer
			if err := im.Send(within(t), pattern(g.Size, gen), 0); err != nil {
				t.Fatal(err)
			}
		}
		if c, fin, n := f.claim.Claimed().Load(), f.claim.Finished().Load(), f.claim.Done().Load(); c != gen || fin != gen || int(n) != g.Targets[0] {
			t.Fatalf("generation %d: %d was claimed, %d finished, %d bytes", gen, c, fin, n)
		}
		f.post.State().Store(shmlayout.Ending(gen))
	}
	w.goesOn(t)
}
