package vmmc_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// seeks asks for an import on the link, and gives the answer with its descriptor.
func (r *hostileLink) seeks(t testing.TB, n, buffer uint32) (wire.Granted, int) {
	t.Helper()
	if err := r.say(t, frame(wire.Header{Type: wire.Import, Handle: buffer, Serial: n}, nil)); err != nil {
		t.Fatal(err)
	}
	var passed unix.Passed
	defer func() { closeAll(passed.Rest()) }()
	h := r.listen(t, &passed)
	if h.Type != wire.Grant || h.Serial != n {
		t.Fatalf("the answer to import %d is %+v", n, h)
	}
	return h.Granted(), passed.Take()
}

// listen gives the next frame, and takes descriptors.
func (r *hostileLink) listen(t testing.TB, passed *unix.Passed) (h wire.Header) {
	t.Helper()
	b := make([]byte, wire.HeaderSize)
	for got, end := 0, time.Now().Add(bound); got < len(b); {
		n, err := r.io.RecvPassed(r.fd, b[got:], nil, passed)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d bytes of a frame came: %v", got, err)
		}
		got += n
	}
	if err := parsed(&h, b); err != nil {
		t.Fatal(err)
	}
	return h
}

// On its link an importer gets what its node would let it have, and nothing else.
func TestImportOnTheLink(t *testing.T) {
	w := newVictim(t)
	m, err := w.b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.b.Export(20, m.Bytes(), vmmc.Permit(vmmc.Permission{Users: []string{"nobody-at-all"}})); err != nil {
		t.Fatal(err)
	}
	to, err := w.b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.b.Export(21, to.Bytes(), vmmc.Redirectable()); err != nil {
		t.Fatal(err)
	}
	o := newOutlaw(t, w.socket, rand.Uint64(), nil)
	r := o.attack(t, o.grab(t, w.b, 7).Exporter)
	for i, c := range []struct {
		buffer       uint32
		may, mapped  bool
		unheard      bool // it has no handler
		rights       nodeproto.Rights
		size, memory int
	}{
		{6, true, true, true, nodeproto.MayRead | nodeproto.MayWrite, 3 * size, 3 * size},
		{7, true, false, false, nodeproto.MayRead | nodeproto.MayWrite, size, 0},
		{8, true, true, true, nodeproto.MayRead, 3 * size, 3 * size},
		{9, true, false, true, nodeproto.MayWrite, 3 * size, 0},
		{buffer: 10},
		{buffer: 20},
		{buffer: 21},
		{buffer: 1 << 31},
	} {
		g, fd := r.seeks(t, uint32(i), c.buffer)
		if (g.Rights != 0) != c.may || nodeproto.Rights(g.Rights)&^nodeproto.Unheard != c.rights || (g.Rights&uint8(nodeproto.Unheard) != 0) != c.unheard || g.Mapped != c.mapped || int(g.Size) != c.size || int(g.Memory) != c.memory {
			t.Errorf("buffer %d: %+v", c.buffer, g)
		}
		if (fd >= 0) != c.mapped {
			t.Errorf("buffer %d: descriptor %d", c.buffer, fd)
		}
		if fd >= 0 {
			reg, err := shm.Open(fd, c.memory, c.rights&nodeproto.MayWrite != 0)
			if err != nil {
				t.Fatal(err)
			}
			reg.Retire()
		}
		if !c.may && g != (wire.Granted{}) {
			t.Errorf("a refusal says %+v", g)
		}
	}
	r.answers(t)
	w.goesOn(t)
}

// Imports that follow the first do not disturb the node.
func TestLaterImportsNeedNoNode(t *testing.T) {
	w := newVictim(t)
	f := newFort(t)
	y := newHostileExporter(t, w.socket, honestly)
	y.direct.Store(true)
	p := join(t, w.socket)
	var ims []*vmmc.Import
	imported := make(chan error, 1)
	next := func() {
		im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
		ims = append(ims, im)
		imported <- err
	}
	next()
	if err := <-imported; err != nil {
		t.Fatal(err)
	}
	r := <-y.accepted
	answer := func(h wire.Header, g wire.Granted, fd int) {
		t.Helper()
		if h.Type != wire.Import || h.Handle != 7 {
			t.Fatalf("not an import of buffer 7: %+v", h)
		}
		h.SetGranted(h.Serial, &g)
		var err error
		if fd < 0 {
			err = r.say(t, frame(h, nil))
		} else {
			_, _, err = r.io.SendPassed(r.fd, r.said.in(frame(h, nil)), fd)
			_ = unix.Close(fd)
		}
		if err != nil {
			t.Error(err)
		}
	}
	var none unix.Passed
	stream := wire.Granted{Handle: 2, Size: size, Rights: uint8(nodeproto.MayRead | nodeproto.MayWrite)}
	mapped := wire.Granted{Handle: 3, Size: size, Rights: stream.Rights, Mapped: true, Memory: uint64(f.mem.Size())}
	for _, c := range []struct {
		grant wire.Granted
		path  string
	}{{stream, "stream"}, {mapped, "mapped"}} {
		go next()
		fd := -1
		if c.grant.Mapped {
			fd = descriptor(t, f.mem)
		}
		answer(r.listen(t, &none), c.grant, fd)
		if err := <-imported; err != nil {
			t.Fatal(err)
		}
		if im := ims[len(ims)-1]; im.Path().String() != c.path || im.Size() != size || im.ID() != 7 || int(im.Exporter().PID) != int(y.id.PID) {
			t.Errorf("%s, %d bytes", im.Path(), im.Size())
		}
	}
	if n := y.offers.Load(); n != 1 {
		t.Errorf("the node has asked %d times, want once", n)
	}
	// A descriptor that is lost, memory that is not what it should be, and a refusal.
	for i, g := range []wire.Granted{{Handle: 4, Size: size, Rights: stream.Rights, Mapped: true, Memory: uint64(f.mem.Size())}, {}} {
		y.gives(func() (nodeproto.Grant, []int) {
			return nodeproto.Grant{Handle: uint32(10 + i), Size: size, Rights: nodeproto.MayRead}, nil
		})
		go next()
		answer(r.listen(t, &none), g, -1)
		if g.Handle != 0 {
			if h := r.listen(t, &none); h.Type != wire.Detach || h.Handle != g.Handle {
				t.Errorf("a grant that cannot be used is not given back: %+v", h)
			}
		}
		if err := <-imported; err != nil {
			t.Fatal(err)
		}
		if n := y.offers.Load(); n != int32(2+i) {
			t.Errorf("the node has asked %d times, want %d", n, 2+i)
		}
	}
	go next()
	answer(r.listen(t, &none), mapped, descriptor(t, f.loose))
	if err := <-imported; !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("memory that is not sealed: %v", err)
	}
	w.goesOn(t)
}

// An exporter that does not answer on the link is asked by way of its node, and on
// the link again once it has answered.
func TestImportOfASilentExporter(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	y.direct.Store(true)
	var handle uint32
	y.gives(func() (nodeproto.Grant, []int) {
		handle++
		return nodeproto.Grant{Handle: handle, Size: size, Rights: nodeproto.MayRead}, nil
	})
	p := join(t, w.socket)
	get := func() {
		t.Helper()
		if _, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // of which the second waits, and the others do not
		get()
	}
	if n := y.offers.Load(); n != 4 {
		t.Errorf("the node has asked %d times, want 4", n)
	}
	r := <-y.accepted
	var none unix.Passed
	h := r.listen(t, &none)
	if h.Type != wire.Import {
		t.Fatalf("%+v", h)
	}
	h.SetGranted(h.Serial, &wire.Granted{Handle: 77, Size: size, Rights: uint8(nodeproto.MayRead)})
	if err := r.say(t, frame(h, nil)); err != nil {
		t.Fatal(err)
	}
	if h := r.listen(t, &none); h.Type != wire.Detach || h.Handle != 77 {
		t.Errorf("what came too late is not given back: %+v", h)
	}
	done := make(chan struct{})
	go func() { defer close(done); get() }()
	if h := r.listen(t, &none); h.Type != wire.Import {
		t.Errorf("%+v", h)
	}
	_ = unix.Close(r.fd) // and one that goes meanwhile
	<-done
	_, r.fd = socketPair(t) // for the test's end to close
}

// An answer to nothing ends the link.
func TestGrantsNobodyAskedFor(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	p := join(t, w.socket)
	im, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	r := <-y.accepted
	if err := r.say(t, frame(wire.Header{Type: wire.Grant, Serial: 1}, nil)); err != nil {
		t.Fatal(err)
	}
	r.over(t)
	if err := im.Send(t.Context(), word, 0); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("%v, want %v", err, vmmc.ErrProtocol)
	}
	w.goesOn(t)
}

// Imports that come together, more than a link takes at a time, and exports that
// end meanwhile.
func TestManyImportsOnOneLink(t *testing.T) {
	w := newVictim(t)
	p := join(t, w.socket)
	if _, err := p.Import(t.Context(), w.b.Node(), w.b.PID(), 6); err != nil {
		t.Fatal(err)
	}
	m, err := w.b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg, all sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			e, err := w.b.Export(30, m.Bytes())
			if err == nil {
				err = e.Close()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 100 {
		all.Go(func() {
			for range 20 {
				id := []uint32{6, 7, 8, 30}[i%4]
				im, err := p.Import(within(t), w.b.Node(), w.b.PID(), id)
				if err != nil {
					t.Errorf("buffer %d: %v", id, err)
					return
				}
				var b [4]byte
				if err := im.Get(within(t), b[:], 0); err != nil && (id != 30 || !errors.Is(err, vmmc.ErrRevoked)) {
					t.Errorf("buffer %d: %v", id, err)
				}
				if err := im.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	wg.Wait()
	w.goesOn(t)
}
