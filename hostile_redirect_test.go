package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
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

// seize imports a buffer and keeps the descriptors that came with the grant.
func (o *outlaw) seize(t testing.TB, p *vmmc.Process, id uint32) (nodeproto.Grant, []int) {
	t.Helper()
	r := nodeproto.ImportRequest{Node: p.Node().String(), PID: uint32(p.PID()), ID: id}
	g, fds, err := nodeproto.Ask[nodeproto.Grant](t.Context(), o.Conn, nodeproto.Import, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(fds) })
	return g, fds
}

// loot is all that the importer of a redirectable buffer is given.
type loot struct {
	*hostileLink
	g       nodeproto.Grant
	fds     []int
	mem     *shm.Region
	post    shmlayout.Post
	claim   shmlayout.Claim
	targets []*shm.Region
}

func (o *outlaw) loot(t testing.TB, p *vmmc.Process, id uint32) *loot {
	t.Helper()
	l := &loot{}
	l.g, l.fds = o.seize(t, p, id)
	l.hostileLink = o.attack(t, l.g.Exporter)
	if !l.g.Mapped || l.g.Claims == 0 || len(l.fds) != 3+len(l.g.Targets) {
		t.Fatalf("%d descriptors with %+v", len(l.fds), l.g)
	}
	var err error
	l.mem = mapped(t, l.fds[0], l.g.Memory)
	if l.post, err = shmlayout.OpenPost(dup(t, l.fds[1])); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.post.Retire)
	if l.claim, err = shmlayout.OpenClaim(dup(t, l.fds[2])); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.claim.Retire)
	for i, size := range l.g.Targets {
		l.targets = append(l.targets, mapped(t, l.fds[3+i], shm.RoundUp(size)))
	}
	return l
}

// mapped maps all of a descriptor for writing.
func mapped(t testing.TB, fd, size int) *shm.Region {
	t.Helper()
	r, err := shm.Open(dup(t, fd), size, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	return r
}

// gen is the generation that the exporter has posted last.
func (l *loot) gen() uint32 { return l.post.State().Load() / 2 }

// absurd are figures that no honest process gives.
var absurd = []uint64{0, 1, 2, 4, size - 4, size, size + 4, 1 << 31, 1 << 32, 1<<46 + 4, 1<<63 - 4, 1 << 63, ^uint64(3), ^uint64(0)}

// scrawl writes any of them into each field of a claim page.
func (l *loot) scrawl(rng *rand.Rand) {
	any64 := func() uint64 {
		if rng.IntN(4) == 0 {
			return rng.Uint64()
		}
		return absurd[rng.IntN(len(absurd))]
	}
	any32 := func() uint32 {
		return []uint32{0, l.gen(), l.gen(), l.gen() - 1, l.gen() + 1, rng.Uint32()}[rng.IntN(6)]
	}
	c := l.claim
	for _, f := range rng.Perm(7) {
		switch f {
		case 0:
			c.First().Store(any64())
		case 1:
			c.Done().Store(any64())
		case 2:
			c.Messages().Store(any64())
		case 3:
			c.End(0).Store(any64())
		case 4:
			c.End(1).Store(any64())
		case 5:
			c.Finished().Store(any32())
		case 6:
			c.Claimed().Store(any32())
		}
	}
}

// redirectVictim is a victim with a redirectable buffer 20, of which everything is known.
type redirectVictim struct {
	*victim
	exp    *vmmc.Export
	mem    []byte
	target *vmmc.Memory
	secret []byte // an allocation that is not exported
	noted  chan vmmc.Notification
}

func newRedirectVictim(t testing.TB) *redirectVictim {
	c := &redirectVictim{victim: newVictim(t), noted: make(chan vmmc.Notification, 64)}
	var all [3]*vmmc.Memory
	for i := range all {
		var err error
		if all[i], err = c.b.Alloc(size); err != nil {
			t.Fatal(err)
		}
	}
	c.mem, c.target, c.secret = all[0].Bytes(), all[1], all[2].Bytes()
	for i := range c.secret {
		c.secret[i] = guard
	}
	c.export(t)
	return c
}

func (c *redirectVictim) export(t testing.TB) {
	t.Helper()
	var err error
	c.exp, err = c.b.Export(20, c.mem, vmmc.Redirectable(c.target), vmmc.WithHandler(func(n vmmc.Notification) {
		_ = n.At[3]
		select {
		case c.noted <- n:
		default: // the test does not need so many
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
}

func (c *redirectVictim) goesOn(t testing.TB) {
	t.Helper()
	c.victim.goesOn(t)
	for i, b := range c.secret {
		if b != guard {
			t.Fatalf("memory that is not exported: byte %d has changed", i)
		}
	}
}

// ended ends a redirection of n bytes within ctx and judges the figures.
func (c *redirectVictim) ended(ctx context.Context, t testing.TB, n int) error {
	t.Helper()
	type result struct {
		n, first int
		err      error
	}
	done := make(chan result, 1)
	go func() {
		n, first, err := c.exp.EndRedir(ctx)
		done <- result{n, first, err}
	}()
	r := first(t, done, "the end of a redirection")
	if r.n < 0 || r.first < 0 || r.first > n || r.n > n-r.first || r.n%4 != 0 || r.first%4 != 0 {
		t.Errorf("%d bytes at %d of %d were redirected, it says (%v)", r.n, r.first, n, r.err)
	}
	if r.err != nil && !errors.Is(r.err, vmmc.ErrProtocol) && !errors.Is(r.err, vmmc.ErrTimeout) && !errors.Is(r.err, vmmc.ErrCanceled) {
		t.Errorf("end of a redirection: %v", r.err)
	}
	return r.err
}

// data judges the end of data.
func (c *redirectVictim) data(t testing.TB) {
	t.Helper()
	if off, ok := c.exp.DataEnd(); ok && (off < 0 || off > size-4 || off%4 != 0) {
		t.Errorf("the last word is at %d of %d, it says", off, size)
	}
}

// Whatever an importer says of its redirections: the exporter gives no figure
// outside of what it has posted, waits no longer than it wants, and can close the
// export.
func TestHostileClaims(t *testing.T) {
	c := newRedirectVictim(t)
	o := newOutlaw(t, c.socket, 1, nil)
	l := o.loot(t, c.b, 20)
	over, stop := context.WithCancel(t.Context())
	stop()
	to := c.target.Bytes()[64:192]
	for _, first := range absurd {
		for _, done := range absurd {
			if err := c.exp.PostRedir(to, 128); err != nil {
				t.Fatal(err)
			}
			g := l.gen()
			l.claim.First().Store(first)
			l.claim.Done().Store(done)
			l.claim.Finished().Store(g - 1)
			l.claim.Claimed().Store(g)
			if err := c.ended(over, t, len(to)); !errors.Is(err, vmmc.ErrCanceled) {
				t.Fatalf("an importer that is not finished is not waited for: %v", err)
			}
			if err := c.exp.PostRedir(to, 0); !errors.Is(err, vmmc.ErrBadRbufState) {
				t.Fatalf("it is not over yet: %v", err)
			}
			l.claim.Finished().Store(g)
			err := c.ended(over, t, len(to))
			if good := first <= 128 && done <= 128-first && (first|done)%4 == 0; good != (err == nil) || !good && !errors.Is(err, vmmc.ErrProtocol) {
				t.Errorf("%d bytes at %d of 128: %v", done, first, err)
			}
		}
		for _, n := range absurd {
			l.claim.End(n).Store(first)
			l.claim.Messages().Store(n)
			c.data(t)
			c.exp.ClearDataEnd()
			if off, ok := c.exp.DataEnd(); ok {
				t.Errorf("an end of data at %d after it was cleared", off)
			}
		}
	}
	// Of memory that the importer has not mapped it has claimed nothing, whatever it says.
	heap := bytes.Repeat([]byte{guard}, 128)
	for _, finished := range []bool{false, true} {
		if err := c.exp.PostRedir(heap, 128); err != nil {
			t.Fatal(err)
		}
		g := l.gen()
		l.claim.First().Store(0)
		l.claim.Done().Store(64)
		l.claim.Claimed().Store(g)
		if finished {
			l.claim.Finished().Store(g)
		}
		if n, _, err := c.exp.EndRedir(over); n != 0 || err != nil {
			t.Errorf("%d bytes of memory that the importer has not mapped: %v", n, err)
		}
	}
	l.answers(t)
	c.goesOn(t)
}

// The same while the importer writes all the while, to everything that it has.
func TestHostileClaimsAllTheWhile(t *testing.T) {
	c := newRedirectVictim(t)
	o := newOutlaw(t, c.socket, 1, nil)
	l := o.loot(t, c.b, 20)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range uint64(2) {
		wg.Go(func() {
			for rng := rand.New(rand.NewPCG(i, 3)); !stop.Load(); {
				l.scrawl(rng)
				binary.LittleEndian.PutUint32(l.mem.Bytes()[4*rng.IntN(size/4):], rng.Uint32())
				binary.LittleEndian.PutUint32(l.targets[0].Bytes()[4*rng.IntN(size/4):], rng.Uint32())
			}
		})
	}
	defer wg.Wait()
	defer stop.Store(true)
	rng := rand.New(rand.NewPCG(4, 5))
	target := c.target.Bytes()
	for i := range 300 {
		from := 4 * rng.IntN(size/4)
		to := target[from : from+4+4*rng.IntN((size-from)/4)]
		if err := c.exp.PostRedir(to, 4*rng.IntN((size-len(to))/4+1)); err != nil {
			t.Fatal(err)
		}
		c.data(t)
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			err := c.ended(ctx, t, len(to))
			cancel()
			if !errors.Is(err, vmmc.ErrTimeout) {
				break
			}
		}
		if i%16 == 0 {
			c.exp.ClearDataEnd()
			c.goesOn(t)
		}
	}
	// One that says it is copying, and never ends it: the export's end ends the wait.
	if err := c.exp.PostRedir(target, 0); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, _, err := c.exp.EndRedir(context.Background())
		waiting <- err
	}()
	closing := make(chan error, 1)
	go func() { closing <- c.exp.Close() }()
	if err := first(t, closing, "the end of the export"); err != nil {
		t.Error(err)
	}
	if err := first(t, waiting, "the end of the redirection"); err != nil && !errors.Is(err, vmmc.ErrBadRbufState) && !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("a redirection whose export has ended: %v", err)
	}
	mine, its := bytes.Clone(c.mem), bytes.Clone(target)
	for range 1000 {
		unix.Yield()
	}
	if !bytes.Equal(mine, c.mem) || !bytes.Equal(its, target) {
		t.Error("the memory changes after the export's end")
	}
	c.goesOn(t)
}

// What comes with a grant is the buffer, the two pages and the targets; what is
// the exporter's alone to write cannot be written, mapped or not.
func TestWhatAnImporterIsGiven(t *testing.T) {
	c := newRedirectVictim(t)
	o := newOutlaw(t, c.socket, 1, nil)
	g, fds := o.seize(t, c.b, 20)
	pages := 4096
	if vmmc.PageSize() > pages {
		pages = vmmc.PageSize()
	}
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Retire()
	mine := []int{descriptor(t, o.page.Region), descriptor(t, ring.Region)}
	_, of, err := nodeproto.Ask[nodeproto.Connected](t.Context(), o.Conn, nodeproto.Connect, nodeproto.ConnectRequest{Exporter: g.Exporter}, mine)
	closeAll(mine)
	if err != nil || len(of) != 3 || len(fds) != 4 {
		t.Fatal(fds, of, err)
	}
	defer closeAll(of)
	for _, d := range []struct {
		what  string
		fd    int
		size  int // 0: any
		write bool
	}{
		{"the buffer", fds[0], size, true},
		{"the post page", fds[1], pages, false},
		{"the claim page", fds[2], pages, true},
		{"the target", fds[3], size, true},
		{"the process page", of[0], 0, false},
		{"the page of the link", of[1], pages, false},
	} {
		info, err := unix.Inspect(d.fd)
		if err != nil {
			t.Fatalf("%s: %v", d.what, err)
		}
		if !info.Fixed || d.size != 0 && int(info.Size) != d.size {
			t.Errorf("%s has %d bytes, want %d; fixed: %v", d.what, info.Size, d.size, info.Fixed)
		}
		r, err := shm.OpenSparse(dup(t, d.fd), int(info.Size), false)
		if err != nil {
			t.Fatalf("%s: %v", d.what, err)
		}
		if at := bytes.Index(r.Bytes(), bytes.Repeat([]byte{guard}, 16)); at >= 0 {
			t.Errorf("%s shows memory that was not exported, at %d", d.what, at)
		}
		before := bytes.Clone(r.Bytes())
		p, err := unix.MapAt(d.fd, 0, int(info.Size), true, false)
		if err == nil {
			_ = unix.Unmap(p, int(info.Size))
		}
		f := os.NewFile(uintptr(dup(t, d.fd)), d.what)
		_, werr := f.WriteAt([]byte("written"), 100)
		terr := f.Truncate(info.Size / 2)
		f.Close()
		if (err == nil) != d.write || (werr == nil) != d.write {
			t.Errorf("%s can be mapped for writing: %v; written: %v; want %v", d.what, err == nil, werr == nil, d.write)
		}
		if terr == nil {
			t.Errorf("%s can be cut off", d.what)
		}
		if !d.write && !bytes.Equal(before, r.Bytes()) {
			t.Errorf("%s was written", d.what)
		}
		r.Retire()
	}
	c.goesOn(t)
}

// An importer that keeps its mappings when the export has ended keeps memory that no
// other process uses. No process sees what it writes there, and it sees nothing of later
// contents, also when the same memory is exported, redirected to and imported again.
func TestKeptMappings(t *testing.T) {
	c := newRedirectVictim(t)
	ctx := within(t)
	o := newOutlaw(t, c.socket, 1, nil)
	l := o.loot(t, c.b, 20)
	target := c.target.Bytes()
	kept := map[string]*shm.Region{"the memory": l.mem, "the target": l.targets[0]}
	mine := map[string][]byte{"the memory": c.mem, "the target": target}
	copy(l.mem.Bytes(), "before")
	copy(l.targets[0].Bytes(), "before")
	if !bytes.HasPrefix(c.mem, []byte("before")) || !bytes.HasPrefix(target, []byte("before")) {
		t.Fatal("it has not even mapped what it was given")
	}
	apart := func(when string) {
		t.Helper()
		for what, b := range mine {
			for i := range b {
				b[i] = 's'
			}
			k := kept[what].Bytes()
			if i := bytes.IndexByte(k, 's'); i >= 0 {
				t.Errorf("%s: %s shows what was stored later, at %d", when, what, i)
			}
			for i := range k {
				k[i] = 'e'
			}
			if i := bytes.IndexByte(b, 'e'); i >= 0 {
				t.Errorf("%s: %s was changed by its earlier importer, at %d", when, what, i)
			}
		}
	}
	if err := c.exp.PostRedir(target, 0); err != nil { // it ends with the export
		t.Fatal(err)
	}
	closed(t, c.exp)
	for what, k := range kept {
		if bytes.Contains(k.Bytes(), []byte("before")) {
			t.Errorf("%s still shows what was in it", what)
		}
	}
	apart("after the end")
	c.export(t)
	apart("exported again")
	im, err := join(t, c.socket).Import(ctx, c.b.Node(), c.b.PID(), 20)
	if err != nil {
		t.Fatal(err)
	}
	if im.Path() != vmmc.PathMapped {
		t.Fatalf("the path is %s", im.Path())
	}
	apart("imported again")
	if err := c.exp.PostRedir(target[:64], 0); err != nil {
		t.Fatal(err)
	}
	l.claim.First().Store(60) // of the pages of before
	l.claim.Claimed().Store(1)
	if err := im.Send(ctx, pattern(128, 9), 0); err != nil {
		t.Fatal(err)
	}
	if n, first, err := c.exp.EndRedir(ctx); n != 64 || first != 0 || err != nil || !bytes.Equal(target[:64], pattern(128, 9)[:64]) {
		t.Errorf("%d bytes at %d: %v", n, first, err)
	}
	for what, k := range kept {
		if bytes.Contains(k.Bytes(), pattern(128, 9)[:8]) || bytes.Contains(k.Bytes(), pattern(128, 9)[64:72]) {
			t.Errorf("%s shows a message to its successor", what)
		}
	}
	closed(t, c.exp)
	apart("ended again")
	c.goesOn(t)
}

// Notes of redirections that never were, or not there, do not bring a handler
// anywhere but into the buffer or what was posted for this importer.
func TestHostileNotesOfRedirections(t *testing.T) {
	c := newRedirectVictim(t)
	o := newOutlaw(t, c.socket, 1, nil)
	l := o.loot(t, c.b, 20)
	target := c.target.Bytes()
	heap := bytes.Repeat([]byte{guard}, 256)
	var last uint32
	for _, to := range [][]byte{heap, target[64:192]} { // of the first it was told nothing
		if err := c.exp.PostRedir(to, 512); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.exp.EndRedir(t.Context()); err != nil {
			t.Fatal(err)
		}
		last++
	}
	inside := func(all, b []byte) bool {
		_, ok := shm.Within(all, b)
		return ok
	}
	serial := uint32(0)
	note := func(n shmlayout.Notification) {
		serial++
		n.Serial = serial
		if n.Handle == 0 {
			n.Handle = l.g.Handle
		}
		l.ring.Put(n)
		if err := l.say(t, frame(wire.Header{Type: wire.Bell}, nil)); err != nil {
			t.Fatalf("the link was ended: %v", err)
		}
		b := make([]byte, 64)
		for end := time.Now().Add(bound); l.back.Returned().Load() != serial; {
			if _, err := l.io.Recv(l.fd, b, nil); err != nil {
				t.Fatalf("the link was ended: %v", err)
			}
			if time.Now().After(end) {
				t.Fatal("no credit comes back")
			}
		}
	}
	ran := 0
	for _, off := range []uint64{0, 4, 508, 512, 636, 640, 764, 768, size - 4, 2, size, 1 << 40, ^uint64(3), 1 << 63} {
		for _, redir := range []uint32{0, 1, last, last + 1, last + shmlayout.Credits, 1 << 31, ^uint32(0)} {
			note(shmlayout.Notification{Off: off, Redir: redir, Word: 7})
			select {
			case n := <-c.noted:
				ran++
				was := redir == last && off >= 512 && off < 640
				if n.Export != c.exp || n.Offset != int(off) || len(n.At) != 4 || n.Word != 7 {
					t.Errorf("offset %d, redirection %d: the handler got %d, %d bytes", off, redir, n.Offset, len(n.At))
				}
				if was && !inside(target[64:192], n.At) || !was && !inside(c.mem, n.At) {
					t.Errorf("offset %d, redirection %d: the handler was sent elsewhere", off, redir)
				}
			default:
				if off < size && off%4 == 0 {
					t.Errorf("offset %d, redirection %d: the handler did not run", off, redir)
				}
			}
		}
	}
	for _, handle := range []uint32{1 << 31, l.g.Claims, ^uint32(0)} {
		note(shmlayout.Notification{Handle: handle, Off: 512, Redir: last})
	}
	if len(c.noted) > 0 || ran != 9*7 {
		t.Errorf("the handler ran %d times, and %d times for others' buffers", ran, len(c.noted))
	}
	// A serial that is not next is never run: the exporter waits for the one before.
	l.ring.Put(shmlayout.Notification{Handle: l.g.Handle, Serial: serial + 2, Redir: last, Off: 512})
	l.answers(t)
	if len(c.noted) > 0 {
		t.Error("a note before its turn was run")
	}
	c.goesOn(t)
}
