package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
	"github.com/vmmc-go/vmmc/node"
)

// outlaw is a process that speaks the protocols by itself and keeps none of
// their rules.
type outlaw struct {
	*nodeproto.Conn
	id   nodeproto.ProcessID
	page shmlayout.Process
}

func newOutlaw(t testing.TB, socket string, inc uint64, answer nodeproto.Handler) *outlaw {
	t.Helper()
	if answer == nil {
		answer = func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
			closeAll(fds)
			return nil, nil, code.New(code.NotImplemented, "request %d", m)
		}
	}
	page, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Retire) // after the connection, whose handler may use it
	c, err := nodeproto.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	o := &outlaw{Conn: nodeproto.NewConn(c, answer), page: page}
	t.Cleanup(func() { o.Close(); <-o.Done() })
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), o.Conn, nodeproto.Register, nodeproto.Hello{Version: nodeproto.Version, Incarnation: inc}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.id = w.Process
	return o
}

// grab imports a buffer; a mapped one's memory is not used.
func (o *outlaw) grab(t testing.TB, p *vmmc.Process, id uint32) nodeproto.Grant {
	t.Helper()
	r := nodeproto.ImportRequest{Node: p.Node().String(), PID: uint32(p.PID()), ID: id}
	g, fds, err := nodeproto.Ask[nodeproto.Grant](t.Context(), o.Conn, nodeproto.Import, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(fds)
	return g
}

// hostileLink is an outlaw's end of a link to an exporter or an importer.
type hostileLink struct {
	fd   int
	io   unix.IO
	ring shmlayout.Importer // the outlaw's own, when it imports
	back shmlayout.Exporter // the exporter's, which may be the outlaw
	said numbers
}

// attack links the outlaw to a process that granted it something.
func (o *outlaw) attack(t testing.TB, exporter nodeproto.ProcessID) *hostileLink {
	t.Helper()
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Retire)
	mine := []int{descriptor(t, o.page.Region), descriptor(t, ring.Region)}
	_, fds, err := nodeproto.Ask[nodeproto.Connected](t.Context(), o.Conn, nodeproto.Connect, nodeproto.ConnectRequest{Exporter: exporter}, mine)
	closeAll(mine)
	if err != nil || len(fds) != 3 {
		closeAll(fds)
		t.Fatal(fds, err)
	}
	closeAll(fds[:1])
	back, err := shmlayout.OpenExporter(fds[1])
	if err != nil {
		closeAll(fds[2:])
		t.Fatal(err)
	}
	t.Cleanup(back.Retire)
	unix.AwaitRights(fds[2]) // of imports that are asked for on the link
	return newHostileLink(t, fds[2], ring, back)
}

func newHostileLink(t testing.TB, fd int, ring shmlayout.Importer, back shmlayout.Exporter) *hostileLink {
	r := &hostileLink{fd: fd, ring: ring, back: back}
	t.Cleanup(func() { _ = unix.Close(r.fd) })
	return r
}

func descriptor(t testing.TB, r *shm.Region) int {
	t.Helper()
	fd, err := r.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// say writes all of b, for as long as the peer listens.
func (r *hostileLink) say(t testing.TB, b []byte) error {
	t.Helper()
	b = r.said.in(b)
	for end := time.Now().Add(bound); len(b) > 0; {
		n, err := r.io.Send(r.fd, b, nil)
		if err != nil {
			return err
		}
		b = b[n:]
		if time.Now().After(end) {
			t.Fatal("the peer neither reads nor ends the link")
		}
	}
	return nil
}

// hear gives what the peer says next, or the error with which it ended the link.
func (r *hostileLink) hear(t testing.TB) (b []byte, err error) {
	t.Helper()
	b = make([]byte, 1<<16)
	for end := time.Now().Add(bound); time.Now().Before(end); {
		n, err := r.io.Recv(r.fd, b, nil)
		if n > 0 || err != nil {
			return b[:n], err
		}
	}
	t.Fatal("the peer neither says something nor ends the link")
	return nil, nil
}

// over fails the test unless the peer ends the link.
func (r *hostileLink) over(t testing.TB) {
	t.Helper()
	for {
		if _, err := r.hear(t); err != nil {
			return
		}
	}
}

// answers fails the test unless the peer still listens.
func (r *hostileLink) answers(t testing.TB) {
	t.Helper()
	if err := r.say(t, frame(wire.Header{Type: wire.Ping}, nil)); err != nil {
		t.Fatalf("the link was ended: %v", err)
	}
	var all []byte
	for {
		b, err := r.hear(t)
		if err != nil {
			t.Fatalf("the link was ended: %v", err)
		}
		all = append(all, b...)
		for len(all) >= wire.HeaderSize {
			var h wire.Header
			if err := parsed(&h, all); err != nil {
				t.Fatal(err)
			}
			if h.Type == wire.Ack {
				return
			}
			all = all[wire.HeaderSize:]
		}
	}
}

// credited waits until the exporter is done with a note, or has ended the link.
func (r *hostileLink) credited(t testing.TB) {
	t.Helper()
	b := make([]byte, 64)
	for end := time.Now().Add(bound); r.back.Returned().Load() == 0; {
		if _, err := r.io.Recv(r.fd, b, nil); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no credit comes back")
		}
	}
}

func frame(h wire.Header, payload []byte) []byte {
	b := make([]byte, wire.HeaderSize, wire.HeaderSize+len(payload))
	h.Put(b, 0)
	return append(b, payload...)
}

func frames(n int, each func(i int) wire.Header) []byte {
	var b []byte
	for i := range n {
		b = append(b, frame(each(i), nil)...)
	}
	return b
}

// victim is an exporting process, its honest importer, and memory that no importer may touch.
type victim struct {
	socket string
	b      *vmmc.Process
	all    []byte // buffer 7 is in its middle
	ro     []byte // buffer 8
	ran    atomic.Int32
	honest *vmmc.Import // of buffer 6
	n      uint32
}

func newVictim(t testing.TB) *victim {
	t.Helper()
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return victimAt(t, n.Socket())
}

func victimAt(t testing.TB, socket string) *victim {
	t.Helper()
	w := &victim{socket: socket, b: join(t, socket)}
	count := vmmc.WithHandler(func(vmmc.Notification) { w.ran.Add(1) })
	var mem [4][]byte
	for i := range mem {
		m, err := w.b.Alloc(3 * size)
		if err != nil {
			t.Fatal(err)
		}
		mem[i] = m.Bytes()
		for j := range mem[i] {
			mem[i][j] = guard
		}
	}
	w.all, w.ro = mem[1], mem[2]
	for id, e := range map[uint32]struct {
		mem  []byte
		opts []vmmc.ExportOption
	}{
		6: {mem[0], nil},
		7: {mem[1][size : 2*size], []vmmc.ExportOption{vmmc.Unmapped(), count}},
		8: {mem[2], []vmmc.ExportOption{vmmc.ReadOnly()}},
		9: {mem[3], []vmmc.ExportOption{vmmc.WriteOnly(), vmmc.Unmapped()}},
	} {
		if _, err := w.b.Export(id, e.mem, e.opts...); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.honest, err = join(t, socket).Import(t.Context(), w.b.Node(), w.b.PID(), 6); err != nil {
		t.Fatal(err)
	}
	return w
}

// reportResumed fails the test if others cannot send and get as before, or if anything
// outside buffer 7 has changed.
func (w *victim) goesOn(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	var src, dst [64]byte
	w.n++
	binary.LittleEndian.PutUint32(src[60:], w.n)
	if err := w.honest.SendNotify(ctx, src[:], 0); err != nil {
		t.Fatalf("the link of others: %v", err)
	}
	if err := w.honest.Get(ctx, dst[:], 0); err != nil || src != dst {
		t.Fatalf("the link of others: %v", err)
	}
	for what, b := range map[string][]byte{"before buffer 7": w.all[:size], "behind buffer 7": w.all[2*size:], "the read-only buffer": w.ro} {
		for i := range b {
			if b[i] != guard {
				t.Fatalf("%s byte %d has changed", what, i)
			}
		}
	}
}

func TestHostileImporter(t *testing.T) {
	w := newVictim(t)
	chunk := make([]byte, 4096)
	data := func(off, n uint64, more ...func(*wire.Header)) wire.Header {
		h := wire.Header{Type: wire.Data, Flags: wire.Last, Seq: 1, Off: off, Size: n, Chunk: uint32(n - 4)}
		for _, f := range more {
			f(&h)
		}
		return h
	}
	first := wire.Header{Type: wire.Data, Seq: 1, Size: 8192, Chunk: 4096}
	then := func(f func(*wire.Header)) []byte {
		h := wire.Header{Type: wire.Data, Flags: wire.Last, Seq: 1, Off: 4096, Size: 8192, Chunk: 4092}
		f(&h)
		return append(frame(first, chunk), frame(h, chunk[:min(len(chunk), int(h.Chunk))])...)
	}
	// Handles are put in later: 0 becomes buffer 7's.
	for name, c := range map[string]struct {
		buffer uint32 // 7 unless given
		bytes  []byte
		ring   func(shmlayout.Importer)
		lives  bool
	}{
		"garbage":                   {bytes: bytes.Repeat([]byte("garbage "), 100)},
		"zeros":                     {bytes: make([]byte, 640)},
		"unknown type":              {bytes: frame(wire.Header{Type: 40}, nil)},
		"a number skipped":          {bytes: frame(data(0, 4, func(h *wire.Header) { h.Seq = 2 }), nil)},
		"number 0":                  {bytes: frame(data(0, 4, func(h *wire.Header) { h.Seq = 0 }), nil)},
		"a number twice":            {bytes: append(frame(data(0, 4), nil), frame(data(0, 4), nil)...)},
		"at the end":                {bytes: frame(data(size, 4), nil)},
		"over the end":              {bytes: frame(data(size-4, 8), chunk[:4])},
		"far beyond":                {bytes: frame(data(1<<40, 64), chunk[:60])},
		"nearly around":             {bytes: frame(data(^uint64(63), 32), chunk[:28])},
		"longer than the buffer":    {bytes: frame(wire.Header{Type: wire.Data, Seq: 1, Size: 1 << 40, Chunk: 4096}, chunk)},
		"odd offset":                {bytes: frame(data(2, 8), chunk[:4])},
		"a chunk too large":         {bytes: frame(wire.Header{Type: wire.Data, Seq: 1, Size: 1 << 20, Chunk: wire.MaxChunk + 4}, chunk)},
		"no size":                   {bytes: frame(wire.Header{Type: wire.Get, Seq: 1}, nil)},
		"send to read-only":         {buffer: 8, bytes: frame(data(0, 4), nil)},
		"get from write-only":       {buffer: 9, bytes: frame(wire.Header{Type: wire.Get, Seq: 1, Size: 4}, nil)},
		"get over the end":          {bytes: frame(wire.Header{Type: wire.Get, Seq: 1, Off: size - 4, Size: 8}, nil)},
		"get of everything":         {bytes: frame(wire.Header{Type: wire.Get, Seq: 1, Size: ^uint64(3)}, nil)},
		"an exporter's frame":       {bytes: frame(wire.Header{Type: wire.Ack, Ack: 1}, nil)},
		"a revocation":              {bytes: frame(wire.Header{Type: wire.Revoke, Word: wire.CodeRevoked}, nil)},
		"a reply":                   {bytes: frame(wire.Header{Type: wire.Reply, Flags: wire.Last, Size: 4}, nil)},
		"a chunk elsewhere":         {bytes: then(func(h *wire.Header) { h.Off += 4 })},
		"a chunk too long":          {bytes: then(func(h *wire.Header) { h.Chunk += 4 })},
		"a chunk too short to end":  {bytes: then(func(h *wire.Header) { h.Chunk -= 4 })},
		"a chunk that does not end": {bytes: then(func(h *wire.Header) { h.Flags, h.Chunk = 0, 4096 })},
		"a chunk of another size":   {bytes: then(func(h *wire.Header) { h.Size += 4 })},
		"a chunk of another number": {bytes: then(func(h *wire.Header) { h.Seq++ })},
		"a chunk of another kind":   {bytes: then(func(h *wire.Header) { h.Flags |= wire.Bytes })},
		"a get in the middle":       {bytes: then(func(h *wire.Header) { *h = wire.Header{Type: wire.Get, Seq: 1, Size: 4} })},
		"another's abort":           {bytes: then(func(h *wire.Header) { *h = wire.Header{Type: wire.Abort, Seq: 2} })},
		"notes without credit": {bytes: frames(shmlayout.Credits+1, func(i int) wire.Header {
			return data(0, 4, func(h *wire.Header) { h.Seq, h.Flags, h.Serial = uint64(i)+1, wire.Last|wire.Notify, uint32(i)+100 })
		})},
		"gets without reading": {bytes: frames(500, func(i int) wire.Header {
			return wire.Header{Type: wire.Get, Seq: uint64(i) + 1, Size: size}
		})},
		"a ring that is overfull": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil),
			ring:  func(r shmlayout.Importer) { shm.Word(r.Bytes(), 64).Store(shmlayout.Credits + 1) },
		},
		"a ring that ran backwards": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil),
			ring:  func(r shmlayout.Importer) { shm.Word(r.Bytes(), 64).Store(^uint32(1)) },
		},

		"imports without reading": {bytes: frames(10000, func(i int) wire.Header {
			return wire.Header{Type: wire.Import, Handle: 6, Serial: uint32(i)}
		})},
		"a grant": {bytes: frame(wire.Header{Type: wire.Grant}, nil)},

		"an unknown import":      {bytes: frame(data(0, 4096, func(h *wire.Header) { h.Handle = 1 << 31 }), chunk[:4092]), lives: true},
		"a get of nothing known": {bytes: frame(wire.Header{Type: wire.Get, Handle: 1 << 31, Seq: 1, Size: 4}, nil), lives: true},
		"an unknown detach":      {bytes: frame(wire.Header{Type: wire.Detach, Handle: 1 << 31}, nil), lives: true},
		"a later version's":      {bytes: frame(wire.Header{Type: 40, Flags: wire.Skip, Chunk: 100}, chunk[:100]), lives: true},
		"many bells":             {bytes: frames(5000, func(int) wire.Header { return wire.Header{Type: wire.Bell} }), lives: true},
		"many pings":             {bytes: frames(5000, func(int) wire.Header { return wire.Header{Type: wire.Ping} }), lives: true},
		"a note without its data": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil), lives: true,
			ring: func(r shmlayout.Importer) { r.Put(shmlayout.Notification{Handle: 1 << 31, Serial: 1}) },
		},
		"a note beside the buffer": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil), lives: true,
			ring: func(r shmlayout.Importer) { r.Put(shmlayout.Notification{Serial: 1, Off: 3 * size}) },
		},
		"a note at an odd place": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil), lives: true,
			ring: func(r shmlayout.Importer) { r.Put(shmlayout.Notification{Serial: 1, Off: 2}) },
		},
		"a note far from the buffer": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil), lives: true,
			ring: func(r shmlayout.Importer) { r.Put(shmlayout.Notification{Serial: 1, Off: 1<<63 + 4}) },
		},
		"a scribbled ring": {
			bytes: frame(wire.Header{Type: wire.Bell}, nil), lives: true,
			ring: func(r shmlayout.Importer) {
				rng := rand.New(rand.NewPCG(1, 2))
				for i := 0; i < r.Size(); i += 4 {
					shm.Word(r.Bytes(), i).Store(rng.Uint32() | 1<<20) // no serial that is next
				}
				shm.Word(r.Bytes(), 64).Store(9)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutlaw(t, w.socket, rand.Uint64(), nil)
			id := c.buffer
			if id == 0 {
				id = 7
			}
			g := o.grab(t, w.b, id)
			r := o.attack(t, g.Exporter)
			if c.ring != nil {
				c.ring(r.ring)
				for i := range shmlayout.Credits { // notes too get the buffer's handle
					if h := shm.Word(r.ring.Bytes(), 128+32*i); h.Load() == 0 {
						h.Store(g.Handle)
					}
				}
			}
			_ = r.say(t, addressed(c.bytes, g.Handle)) // it may be cut off in the middle
			if c.lives {
				if c.ring != nil && shm.Word(r.ring.Bytes(), 64).Load() == 1 {
					r.credited(t)
				}
				r.answers(t)
			} else {
				r.over(t)
			}
			w.goesOn(t)
			if n := w.ran.Load(); n != 0 {
				t.Errorf("a handler ran %d times", n)
			}
		})
	}
}

// addressed puts a handle into those frames at the start of b that have none.
func addressed(b []byte, handle uint32) []byte {
	b = bytes.Clone(b)
	for at := 0; at+wire.HeaderSize <= len(b); {
		raw := b[at : at+wire.HeaderSize]
		var h wire.Header
		err := h.Parse(raw, 0)
		if h.Type == 0 {
			break // garbage
		}
		if h.Handle == 0 {
			h.Handle = handle
			h.Put(raw, 0)
		}
		if err != nil {
			break
		}
		at += wire.HeaderSize + int(h.Chunk)
	}
	return b
}

// Silence in the middle of a frame or of a message delays no other process, and the
// export can still be closed.
func TestHostileSilence(t *testing.T) {
	w := newVictim(t)
	for _, b := range [][]byte{
		frame(wire.Header{Type: wire.Ping}, nil)[:17],
		frame(wire.Header{Type: wire.Data, Seq: 1, Size: 8192, Chunk: 4096}, make([]byte, 100)),
		frame(wire.Header{Type: wire.Data, Seq: 1, Size: 8192, Chunk: 4096}, make([]byte, 4096)),
	} {
		o := newOutlaw(t, w.socket, rand.Uint64(), nil)
		g := o.grab(t, w.b, 7)
		r := o.attack(t, g.Exporter)
		if err := r.say(t, addressed(b, g.Handle)); err != nil {
			t.Fatal(err)
		}
		w.goesOn(t)
	}
	if err := w.b.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzHostileImporter throws frames at an exporter: the input is made into
// frames whose checksums are right.
func FuzzHostileImporter(f *testing.F) {
	w := newVictim(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		o := newOutlaw(t, w.socket, rand.Uint64(), nil)
		g := o.grab(t, w.b, 7)
		r := o.attack(t, g.Exporter)
		var out []byte
		for len(in) >= 12 {
			// Small numbers nearly everywhere: large ones end the link at once.
			h := wire.Header{
				Type: wire.Type(in[0] % 16), Flags: in[1], Handle: g.Handle + uint32(in[2]&3)/3, Seq: uint64(in[3]),
				Off: uint64(in[4]) << (in[5] & 15), Size: uint64(in[6]) << (in[7] & 15), Chunk: uint32(in[8]) << (in[9] & 7),
				Word: uint32(in[10]), Serial: uint32(in[11]),
			}
			in = in[12:]
			n := min(int(h.Chunk), len(in))
			out = append(out, frame(h, in[:n])...)
			in = in[n:]
		}
		_ = r.say(t, append(out, in...))
		w.goesOn(t)
	})
}

// hostileExporter is an outlaw that exports: it grants what it is told to, and answers a
// link with what accept gives.
type hostileExporter struct {
	*outlaw
	accepted chan *hostileLink
	grant    atomic.Pointer[func(socket int) (nodeproto.Grant, []int)] // nil: a buffer on the stream
	direct   atomic.Bool                                               // it says that it takes imports on links
	offers   atomic.Int32                                              // that it was asked for by its node
	accept   atomic.Pointer[func(process, back int) []int]
	others   atomic.Pointer[func()] // is called before other requests are answered; nil: nothing is
}

// accepts says what it answers a link with from now on.
func (y *hostileExporter) accepts(f func(process, back int) []int) { y.accept.Store(&f) }

// imported is buffer 7 as p has it.
func (y *hostileExporter) imported(t testing.TB, p *vmmc.Process) *vmmc.Import {
	t.Helper()
	im, err := p.Import(within(t), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// attacked returns a process that imports from a hostile exporter, the import, and the exporter's
// end of the link.
func (w *victim) attacked(t *testing.T) (*vmmc.Process, *vmmc.Import, *hostileLink) {
	t.Helper()
	y := newHostileExporter(t, w.socket, honestly)
	p := join(t, w.socket)
	im := y.imported(t, p)
	return p, im, <-y.accepted
}

// gives says what a grant is from now on, and what comes with it.
func (y *hostileExporter) gives(f func() (nodeproto.Grant, []int)) {
	y.links(func(socket int) (nodeproto.Grant, []int) {
		_ = unix.Close(socket)
		return f()
	})
}

// links is gives for an exporter that makes a link at once. It owns the socket, its end of that; -1
// without.
func (y *hostileExporter) links(f func(socket int) (nodeproto.Grant, []int)) { y.grant.Store(&f) }

func newHostileExporter(t testing.TB, socket string, accept func(process, back int) []int) *hostileExporter {
	t.Helper()
	y := &hostileExporter{accepted: make(chan *hostileLink, 8)}
	y.accepts(accept)
	ready := make(chan struct{})
	y.outlaw = newOutlaw(t, socket, rand.Uint64(), func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
		<-ready
		near := -1 // its end of a link
		if len(fds) == nodeproto.LinkDescriptors {
			near, fds = fds[nodeproto.LinkPages], fds[:nodeproto.LinkPages]
			foreign.Own(near)
		}
		closeAll(fds)
		switch m {
		case nodeproto.Offer:
			y.offers.Add(1)
			if give := y.grant.Load(); give != nil {
				g, fds := (*give)(near)
				return g, fds, nil
			}
			_ = unix.Close(near)
			return nodeproto.Grant{Handle: 1, Size: size, Rights: nodeproto.MayRead | nodeproto.MayWrite}, nil, nil
		case nodeproto.Accept:
			back, err := shmlayout.NewExporter()
			if err != nil {
				return nil, nil, err
			}
			y.accepted <- newHostileLink(t, near, shmlayout.Importer{}, back)
			process, pages := descriptor(t, y.page.Region), descriptor(t, back.Region)
			t.Cleanup(back.Retire) // at once if the test has ended
			return nodeproto.Accepted{Imports: y.direct.Load()}, (*y.accept.Load())(process, pages), nil
		}
		_ = unix.Close(near)
		if f := y.others.Load(); f != nil {
			(*f)()
		}
		return nodeproto.Empty{}, nil, nil
	})
	close(ready)
	r := nodeproto.ExportRequest{ID: 7, Size: size, Rights: nodeproto.MayRead | nodeproto.MayWrite}
	if _, err := y.Call(t.Context(), nodeproto.Export, r, nil, nil); err != nil {
		t.Fatal(err)
	}
	return y
}

func honestly(process, back int) []int { return []int{process, back} }

// emptyPage is a page that is of no kind.
func emptyPage(t testing.TB, seal bool) (fd int) {
	t.Helper()
	r, err := shm.NewSparse("test", shm.PageSize, seal)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Retire()
	return descriptor(t, r)
}

// badLinks are what an exporter may hand over instead of a link; all of it is given away, or
// closed.
func badLinks(t *testing.T) map[string]func(process, back int) []int {
	memfd := func(seal bool) int { return emptyPage(t, seal) }
	socket := func() int {
		a, b, err := unix.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(a)
		return b
	}
	return map[string]func(process, back int) []int{
		"nothing":             func(p, b int) []int { closeAll([]int{p, b}); return nil },
		"one too few":         func(p, b int) []int { closeAll([]int{b}); return []int{p} },
		"one too many":        func(p, b int) []int { return []int{p, b, memfd(true)} },
		"another order":       func(p, b int) []int { return []int{b, p} },
		"a socket of its own": func(p, b int) []int { return []int{p, b, socket()} },
		"a socket for a page": func(p, b int) []int { closeAll([]int{b}); return []int{p, socket()} },
		"an empty page":       func(p, b int) []int { closeAll([]int{b}); return []int{p, memfd(true)} },
		"a page that shrinks": func(p, b int) []int { closeAll([]int{b}); return []int{p, memfd(false)} },
		"sockets":             func(p, b int) []int { closeAll([]int{p, b}); return []int{socket(), socket(), socket()} },
		"as many as there go": func(p, b int) []int { return append(many(t, p, nodeproto.MaxDescriptors-2), p, b) },
	}
}

// What an exporter hands over instead of a link is an error of the import, and
// all of it is closed.
func TestHostileLink(t *testing.T) {
	w := newVictim(t)
	for name, accept := range badLinks(t) {
		t.Run(name, func(t *testing.T) {
			y := newHostileExporter(t, w.socket, accept)
			p := join(t, w.socket)
			ctx, stop := context.WithTimeout(t.Context(), bound)
			defer stop()
			im, err := p.Import(ctx, p.Node(), vmmc.PID(y.id.PID), 7)
			if err == nil {
				t.Errorf("imported as %s", im.Path())
			} else if ctx.Err() != nil {
				t.Errorf("it waits for ever: %v", err)
			}
			r := <-y.accepted
			r.over(t) // its end of the pair was closed
			if _, err := p.Import(t.Context(), w.b.Node(), w.b.PID(), 6); err != nil {
				t.Errorf("import from an honest process: %v", err)
			}
			w.goesOn(t)
		})
	}
}

func dup(t testing.TB, fd int) int {
	t.Helper()
	d, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// An exporter that breaks the protocol loses the link, and the importer's calls
// say why; nothing else of the importer suffers.
func TestHostileExporter(t *testing.T) {
	w := newVictim(t)
	reply := wire.Header{Type: wire.Reply, Flags: wire.Last, Handle: 1, Seq: 1, Size: 8, Chunk: 4}
	with := func(f func(*wire.Header)) []byte {
		h := reply
		f(&h)
		return frame(h, make([]byte, min(h.Chunk, 1<<16)))
	}
	for name, b := range map[string][]byte{
		"garbage":               bytes.Repeat([]byte("garbage "), 100),
		"an importer's frame":   frame(wire.Header{Type: wire.Data, Flags: wire.Last, Seq: 1, Size: 4}, nil),
		"too much acknowledged": frame(wire.Header{Type: wire.Ack, Ack: 2}, nil),
		"another's reply":       with(func(h *wire.Header) { h.Seq = 2 }),
		"a longer reply":        with(func(h *wire.Header) { h.Size, h.Chunk = 16, 12 }),
		"a shorter reply":       with(func(h *wire.Header) { h.Size, h.Chunk = 4, 0 }),
		"half a reply as all":   with(func(h *wire.Header) { h.Chunk = 0 }),
		"a reply elsewhere":     with(func(h *wire.Header) { h.Off = 4 }),
		"a reply in bytes":      with(func(h *wire.Header) { h.Flags |= wire.Bytes; h.Chunk = 8 }),
		"an empty reply":        with(func(h *wire.Header) { h.Size, h.Chunk = 0, 0 }),
		"a reply without end":   with(func(h *wire.Header) { h.Flags = 0; h.Chunk = 8 }),
		"a strange refusal":     frame(wire.Header{Type: wire.Nak, Handle: 1, Seq: 1, Word: 99}, nil),
		"a strange revocation":  frame(wire.Header{Type: wire.Revoke, Handle: 1, Word: 99}, nil),
		"the end":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			p, im, r := w.attacked(t)
			got := bytes.Repeat([]byte{guard}, 24)
			errs := make(chan error, 1)
			go func() { errs <- im.Get(t.Context(), got[8:16], 0) }()
			if _, err := r.hear(t); err != nil { // the get
				t.Fatal(err)
			}
			if b == nil {
				_ = unix.Close(r.fd)
				r.fd = -1
			} else {
				_ = r.say(t, b)
			}
			select {
			case err := <-errs:
				want := error(vmmc.ErrProtocol)
				if r.fd < 0 {
					want = vmmc.ErrPeerGone
				}
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			case <-time.After(bound):
				t.Fatal("the get waits for ever")
			}
			if g := []byte{guard}; !bytes.Equal(got[:8], bytes.Repeat(g, 8)) || !bytes.Equal(got[16:], bytes.Repeat(g, 8)) {
				t.Errorf("the reply went beyond its place: %x", got)
			}
			other, err := p.Import(t.Context(), w.b.Node(), w.b.PID(), 6)
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Get(t.Context(), got[:4], 0); err != nil {
				t.Errorf("get from an honest process: %v", err)
			}
			w.goesOn(t)
		})
	}
}

// An exporter that never answers delays only calls to it, and them only for as long
// as their contexts allow.
func TestExporterThatNeverAnswers(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	p := join(t, w.socket)
	im, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := im.Get(ctx, make([]byte, 8), 0); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("get: %v", err)
	}
	if err := im.Fence(ctx); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("fence: %v", err)
	}
	const elsewhere = 64                                                             // than what the get reads, which updates wait for
	err = eventually(t, func() error { return im.SendNotify(ctx, word, elsewhere) }) // until there is no credit
	if !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("send with notification: %v", err)
	}
	err = eventually(t, func() error { return im.Send(ctx, make([]byte, 2048), elsewhere) }) // until the socket is full
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("send: %v", err)
	}
	r := <-y.accepted
	shm.Word(r.back.Bytes(), 128).Store(1 << 20) // credits that were never taken
	err = eventually(t, func() error { return im.SendNotify(t.Context(), word, elsewhere) })
	if !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("send with notification, after more credits than were taken: %v", err)
	}
	w.goesOn(t)
}

// An import does not carry over to a process that claims to be the same, nor does the
// honest process lose its link.
func TestStolenIncarnation(t *testing.T) {
	w := newVictim(t)
	one := newOutlaw(t, w.socket, 4711, nil)
	g := one.grab(t, w.b, 7)
	r := one.attack(t, g.Exporter)
	r.answers(t)
	thief := newOutlaw(t, w.socket, 4711, nil)
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Retire()
	mine := []int{descriptor(t, thief.page.Region), descriptor(t, ring.Region)}
	_, fds, err := nodeproto.Ask[nodeproto.Connected](t.Context(), thief.Conn, nodeproto.Connect, nodeproto.ConnectRequest{Exporter: g.Exporter}, mine)
	closeAll(mine)
	closeAll(fds)
	if err == nil {
		t.Error("a process that was granted nothing got a link, and with it what another one was granted")
	}
	r.answers(t)
}

// An importer that may only read cannot have a handler run.
func TestNoteToReadOnly(t *testing.T) {
	w := newVictim(t)
	o := newOutlaw(t, w.socket, 1, nil)
	g := o.grab(t, w.b, 8)
	r := o.attack(t, g.Exporter)
	r.ring.Put(shmlayout.Notification{Handle: g.Handle, Serial: 1})
	_ = r.say(t, frame(wire.Header{Type: wire.Bell}, nil))
	r.credited(t)
	if w.ran.Load() != 0 {
		t.Error("the handler of a read-only buffer ran")
	}
	w.goesOn(t)
}

// A sender that never reads must be held up or cut off: answers to it cannot
// pile up in the exporter for ever.
func TestNeverReading(t *testing.T) {
	w := newVictim(t)
	o := newOutlaw(t, w.socket, 1, nil)
	r := o.attack(t, o.grab(t, w.b, 7).Exporter)
	b := frames(100_000, func(i int) wire.Header {
		return wire.Header{Type: wire.Get, Handle: 1 << 31, Seq: uint64(i) + 1, Size: 4}
	})
	b = r.said.in(b)
	idle := 0
	for len(b) > 0 && idle < 10_000 {
		n, err := r.io.Send(r.fd, b, nil)
		if err != nil {
			break
		}
		b = b[n:]
		if idle++; n > 0 {
			idle = 0
		}
		unix.Yield()
	}
	if len(b) == 0 {
		t.Error("all of 100,000 requests were taken, and none of the answers")
	}
	w.goesOn(t)
}

// afterRole is an exporter whose program always waits, so that its links are
// polled, and an importer that goes on after a frame that ends the link.
func afterRole() int {
	t := &failing{}
	n, err := node.Start()
	if err != nil {
		return 1
	}
	b, err := vmmc.Open(context.Background(), vmmc.WithSocket(n.Socket()))
	if err != nil {
		return 1
	}
	m, err := b.Alloc(4096)
	if err != nil {
		return 1
	}
	if _, err := b.Export(7, m.Bytes(), vmmc.Unmapped()); err != nil {
		return 1
	}
	var stop atomic.Bool
	for range 4 {
		go func() {
			for !stop.Load() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				_ = b.WaitUntil(ctx, func() bool { return false })
				cancel()
			}
		}()
	}
	bad := addressed(append(frame(wire.Header{Type: wire.Get, Seq: 2000}, nil), frame(wire.Header{Type: wire.Ping}, nil)...), 1)
	for i := range uint64(60) {
		o := newOutlaw(t, n.Socket(), i+1, nil)
		g := o.grab(t, b, 7)
		r := o.attack(t, g.Exporter)
		for j := range uint64(200) { // now the link is a busy one, which waiters poll
			if r.say(t, frame(wire.Header{Type: wire.Data, Flags: wire.Last, Handle: g.Handle, Seq: j + 1, Size: 4}, nil)) != nil {
				return 1
			}
		}
		for range 100 {
			if r.say(t, bad) != nil {
				break
			}
		}
		r.over(t)
		_ = unix.Close(r.fd)
		r.ring.Retire()
		o.page.Retire()
		o.Close()
	}
	stop.Store(true)
	fmt.Println("survived")
	return 0
}

// failing is a testing.TB for a role.
type failing struct{ testing.TB }

func (*failing) Helper()                  {}
func (*failing) Cleanup(func())           {}
func (*failing) Context() context.Context { return context.Background() }
func (*failing) Fatal(a ...any)           { panic(fmt.Sprint(a...)) }
func (*failing) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}

// What follows a frame that ends the link must not be looked at: the frame's own
// header, which was refused, would be taken as good.
func TestFramesAfterTheEnd(t *testing.T) {
	out, err := testutil.Command(t, "after").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("survived")) {
		t.Errorf("the exporter ended with %v:\n%.3000s", err, out)
	}
}
