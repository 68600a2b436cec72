package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
	"github.com/vmmc-go/vmmc/node"
)

// market is a process that exports some buffers, whose notifications are counted.
type market struct {
	socket string
	b      *vmmc.Process
	mem    [][]byte
	ran    []atomic.Int64 // notifications of each buffer
}

func newMarket(t testing.TB, n int) *market {
	t.Helper()
	d, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	m := &market{socket: d.Socket(), b: join(t, d.Socket()), mem: make([][]byte, n), ran: make([]atomic.Int64, n)}
	for i := range m.mem {
		all, err := m.b.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		m.mem[i] = all.Bytes()
	}
	return m
}

// export lets others have buffer i; every other one is mapped.
func (m *market) export(t testing.TB, i int) *vmmc.Export {
	t.Helper()
	opts := []vmmc.ExportOption{vmmc.WithHandler(func(vmmc.Notification) { m.ran[i].Add(1) })}
	if i%2 == 1 {
		opts = append(opts, vmmc.Unmapped())
	}
	e, err := m.b.Export(uint32(i), m.mem[i], opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// works fails the test unless an import of buffer i is one that its exporter knows of: what is sent
// is there, and its handler runs.
func (m *market) works(t testing.TB, im *vmmc.Import, i int, word uint32) {
	t.Helper()
	ctx := within(t)
	was := m.ran[i].Load()
	var got [4]byte
	if err := im.SendNotify(ctx, w32(word), 0); err != nil {
		t.Errorf("buffer %d: %v", i, err)
		return
	}
	if err := im.Get(ctx, got[:], 0); err != nil || binary.LittleEndian.Uint32(got[:]) != word {
		t.Errorf("buffer %d: %v, %v, want %d", i, got, err, word)
	}
	if err := m.b.WaitUntil(ctx, func() bool { return m.ran[i].Load() > was }); err != nil {
		t.Errorf("buffer %d: its handler does not run: %v", i, err)
	}
}

// empty fails the test if grants of processes that have ended stay.
func (m *market) empty(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(bound); vmmc.Grants(m.b) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d grants are left of processes that have ended", vmmc.Grants(m.b))
		}
	}
}

// Many goroutines may make the first import from a process at once. One that waits for a buffer
// that is not exported yet delays none of the others, and all use one link.
func TestFirstImportsTogether(t *testing.T) {
	const late, each = 3, 8
	m := newMarket(t, 4)
	for i := range late {
		m.export(t, i)
	}
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for links := range uint64(rounds) {
		p := join(t, m.socket)
		ims := make([]*vmmc.Import, (late+1)*each)
		get := func(k int) {
			for again := range 3 {
				im, err := p.Import(within(t), m.b.Node(), m.b.PID(), uint32(k%(late+1)))
				if err != nil {
					t.Errorf("buffer %d: %v", k%(late+1), err)
					return
				}
				if ims[k] = im; again < 2 {
					if err := im.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
		var there, waiting sync.WaitGroup
		for k := range ims {
			if k%(late+1) == late {
				waiting.Go(func() { get(k) })
			} else {
				there.Go(func() { get(k) })
			}
		}
		there.Wait()
		e := m.export(t, late)
		waiting.Wait()
		if t.Failed() {
			return
		}
		for k, im := range ims {
			m.works(t, im, k%(late+1), rand.Uint32())
		}
		if n, order := vmmc.Importers(m.b); n != 1 || order != links+1 {
			t.Errorf("%d importers have a link, of %d that were asked for, want 1 of %d", n, order, links+1)
		}
		if err := errors.Join(e.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		m.empty(t)
	}
}

// A first import whose context ends at whichever moment takes nothing from those that come with it
// or after it, and leaves nothing.
func TestFirstImportCutOff(t *testing.T) {
	const n, each = 3, 4
	m := newMarket(t, n)
	for i := range n {
		m.export(t, i)
	}
	rounds := 300
	if testing.Short() {
		rounds = 40
	}
	var took time.Duration // by an import
	for range rounds {
		p := join(t, m.socket)
		ims := make([]*vmmc.Import, n*each)
		var wg sync.WaitGroup
		ctx, stop := context.WithTimeout(t.Context(), rand.N(took+time.Microsecond))
		wg.Go(func() {
			if im, err := p.Import(ctx, m.b.Node(), m.b.PID(), 0); err == nil {
				m.works(t, im, 0, rand.Uint32())
			}
		})
		begun := time.Now()
		for k := range ims {
			wg.Go(func() {
				im, err := p.Import(within(t), m.b.Node(), m.b.PID(), uint32(k%n))
				if err != nil {
					t.Errorf("buffer %d: %v", k%n, err)
				}
				ims[k] = im
			})
		}
		wg.Wait()
		took = time.Since(begun)
		stop()
		if t.Failed() {
			return
		}
		for k, im := range ims {
			m.works(t, im, k%n, rand.Uint32())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	m.empty(t)
}

// stall has the exporter be one that answers with a grant and a link at once: goods come with the
// grant, and link says what with the link.
func (y *hostileExporter) stall(t testing.TB, goods func() []int, link func(process, back int) []int) {
	y.links(func(socket int) (nodeproto.Grant, []int) {
		g := nodeproto.Grant{Handle: 1, Size: size, Rights: nodeproto.MayRead | nodeproto.MayWrite, Link: &nodeproto.Connected{Imports: y.direct.Load()}}
		back, err := shmlayout.NewExporter()
		if err != nil {
			t.Error(err)
			return g, nil
		}
		t.Cleanup(back.Retire)
		if socket >= 0 { // else the importer has asked for no link
			y.accepted <- newHostileLink(t, socket, shmlayout.Importer{}, back)
		}
		return g, append(goods(), link(descriptor(t, y.page.Region), descriptor(t, back.Region))...)
	})
}

func nothing() []int { return nil }

// What an exporter hands over with a grant instead of a link is an error of the import, and all of
// it is closed. The importer goes on, also with that exporter.
func TestHostileFirstLink(t *testing.T) {
	w := newVictim(t)
	links := badLinks(t)
	links["one before them"] = func(p, b int) []int { return []int{emptyPage(t, true), p, b} }
	links["as many as there go"] = func(p, b int) []int {
		return slices.Concat(many(t, p, nodeproto.MaxDescriptors-nodeproto.LinkDescriptors), []int{p, b})
	}
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			y := newHostileExporter(t, w.socket, honestly)
			y.stall(t, nothing, link)
			p := join(t, w.socket)
			im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
			if err == nil {
				t.Errorf("imported as %s", im.Path())
			} else if errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("it waits for ever: %v", err)
			}
			r := <-y.accepted
			if name != "one before them" && name != "as many as there go" { // the link is good then, and the grant is not
				r.over(t)
			}
			if _, err := p.Import(within(t), w.b.Node(), w.b.PID(), 6); err != nil {
				t.Errorf("import from an honest process: %v", err)
			}
			y.grant.Store(nil)
			if _, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7); err != nil {
				t.Errorf("what holds together: %v", err)
			}
			w.goesOn(t)
		})
	}
}

// many are n more of a descriptor.
func many(t testing.TB, fd, n int) (fds []int) {
	for range n {
		fds = append(fds, dup(t, fd))
	}
	return fds
}

// A link where there is one already is none: the importer goes on with its own.
func TestLinkThatWasNotAskedFor(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	y.stall(t, nothing, honestly)
	p := join(t, w.socket)
	im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	first := <-y.accepted
	if im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("%v, %v, want %v", im, err, vmmc.ErrProtocol)
	}
	if err := im.Send(within(t), word, 0); err != nil {
		t.Errorf("the link that was there: %v", err)
	}
	var none unix.Passed
	if h := first.listen(t, &none); h.Type != wire.Data || h.Handle != 1 {
		t.Errorf("%+v comes on the link that was there", h)
	}
	w.goesOn(t)
}

// An exporter of an older version, which makes no link with a grant, is asked for it.
func TestFirstImportFromAnOlderExporter(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	p := join(t, w.socket)
	im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	r := <-y.accepted // of the question for the link
	if err := im.Send(within(t), word, 0); err != nil {
		t.Error(err)
	}
	var none unix.Passed
	if h := r.listen(t, &none); h.Type != wire.Data {
		t.Errorf("%+v", h)
	}
	if n := y.offers.Load(); n != 1 {
		t.Errorf("the node has asked %d times, want once", n)
	}
	w.goesOn(t)
}

// An export that ends while its first import and the link are made: the importer gets nothing, or
// is told on the link, at whatever moment that was.
func TestExportEndsWhileItsFirstImportIsMade(t *testing.T) {
	w := newFakeDaemon(t)
	mine, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mine.Retire)
	made, yields := 0, 10 // before the end: about as many as the import takes, however busy the machine
	for n := uint64(1); n <= 200; n++ {
		const buffer = 30
		e, err := w.p.Export(buffer, make([]byte, 64))
		if err != nil {
			t.Fatal(err)
		}
		ring, err := shmlayout.NewImporter()
		if err != nil {
			t.Fatal(err)
		}
		socket, near, err := unix.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		pages := []int{descriptor(t, mine.Region), descriptor(t, ring.Region), near}
		id := nodeproto.ProcessID{Node: "a", PID: 2, Incarnation: n}
		w.offer(t, id) // of another buffer, without which its link would not begin
		r := nodeproto.OfferRequest{Importer: nodeproto.Importer{Process: id}, ID: buffer, Serial: n + 1, SameNode: true, Order: n}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range yields {
				unix.Yield()
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		g, fds, err := nodeproto.Ask[nodeproto.Grant](t.Context(), w.Conn, nodeproto.Offer, r, pages)
		closeAll(pages)
		wg.Wait()
		ring.Retire()
		if err != nil {
			_ = unix.Close(socket)
			if !errors.Is(err, code.BadRbufState) {
				t.Fatal(err)
			}
			yields = min(yields+yields/4+1, 1000)
			continue
		}
		if g.Link == nil || len(fds) != nodeproto.LinkPages {
			t.Fatalf("a grant without a link: %+v with %d descriptors", g, len(fds))
		}
		made++
		yields -= yields / 4
		closeAll(fds)
		link := newHostileLink(t, socket, shmlayout.Importer{}, shmlayout.Exporter{})
		var none unix.Passed
		if h := link.listen(t, &none); h.Type != wire.Revoke || h.Handle != g.Handle {
			t.Fatalf("of the end of import %d the importer hears %+v", g.Handle, h)
		}
		closeAll(none.Rest())
		_ = unix.Close(link.fd)
		link.fd = -1
	}
	t.Logf("%d imports were made", made) // on a machine that is very busy it may be none
}
