package vmmc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// part exports mem and imports it; the path must be as wanted.
func part(t testing.TB, b, a *vmmc.Process, id uint32, mem []byte, path string, opts ...vmmc.ExportOption) (*vmmc.Export, *vmmc.Import) {
	t.Helper()
	e, err := b.Export(id, mem, opts...)
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(t.Context(), b.Node(), b.PID(), id)
	if err != nil {
		t.Fatal(err)
	}
	if im.Path().String() != path {
		t.Fatalf("buffer %d: the path is %s, want %s", id, im.Path(), path)
	}
	return e, im
}

// bypass is all of the memory that an import of a buffer brings, as a process
// maps it that does without the library.
func bypass(t testing.TB, socket string, p *vmmc.Process, id uint32) *shm.Region {
	t.Helper()
	o := newOutlaw(t, socket, uint64(id), nil)
	r := nodeproto.ImportRequest{Node: p.Node().String(), PID: uint32(p.PID()), ID: id}
	g, fds, err := nodeproto.Ask[nodeproto.Grant](t.Context(), o.Conn, nodeproto.Import, r, nil)
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	all, err := shm.Open(fds[0], g.Memory, g.Rights&nodeproto.MayWrite != 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Retire)
	return all
}

func closed(t testing.TB, es ...*vmmc.Export) {
	t.Helper()
	for _, e := range es {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSharePages(t *testing.T) {
	for _, way := range []string{"mapped", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			mem := alloc(t, b, 5*vmmc.PageSize()-8)
			for i := range mem {
				mem[i] = guard
			}
			path := "mapped"
			if way != "mapped" {
				path = "stream"
			}
			p := vmmc.PageSize()
			for id, c := range []struct {
				from, to int
				path     string
				opts     []vmmc.ExportOption
			}{
				{0, 4, path, []vmmc.ExportOption{vmmc.SharePages()}},
				{12, p - 4, path, []vmmc.ExportOption{vmmc.SharePages(), vmmc.GlobalSpace()}},
				{p - 4, p + 4, path, []vmmc.ExportOption{vmmc.SharePages()}},
				{2 * p, 3 * p, path, []vmmc.ExportOption{vmmc.SharePages()}},
				{3 * p, 4 * p, "stream", []vmmc.ExportOption{vmmc.GlobalSpace()}},
				{4 * p, 4*p + 8, "stream", []vmmc.ExportOption{vmmc.SharePages(), vmmc.Unmapped()}},
				{4*p + 12, 5*p - 8, path, []vmmc.ExportOption{vmmc.SharePages()}},
			} {
				_, im := part(t, b, a, uint32(id), mem[c.from:c.to], c.path, c.opts...)
				if im.Size() != c.to-c.from {
					t.Errorf("buffer %d has %d bytes, want %d", id, im.Size(), c.to-c.from)
				}
				want := bytes.Clone(mem)
				src := bytes.Repeat([]byte{byte(id + 1)}, c.to-c.from)
				copy(want[c.from:], src)
				if err := im.Send(t.Context(), src, 0); err != nil {
					t.Fatal(err)
				}
				if err := im.Send(t.Context(), word, len(src)); !errors.Is(err, vmmc.ErrBadProxyAddr) {
					t.Errorf("a send beyond buffer %d: %v", id, err)
				}
				got := make([]byte, len(src))
				if err := im.Get(t.Context(), got, 0); err != nil || !bytes.Equal(got, src) {
					t.Errorf("get from buffer %d: %v", id, err)
				}
				if !bytes.Equal(mem, want) {
					t.Fatalf("buffer %d: the memory is not what was sent", id)
				}
			}
			heap := make([]byte, 64)
			part(t, b, a, 100, heap, "stream", vmmc.SharePages())
		})
	}
}

func TestGlobalSpace(t *testing.T) {
	p := open(t, start(t))
	m, err := p.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	for id, mem := range [][]byte{m.Bytes(), m.Bytes()[4:8]} {
		e, err := p.Export(uint32(id), mem, vmmc.GlobalSpace())
		if err != nil {
			t.Fatal(err)
		}
		closed(t, e)
	}
	if _, err := p.Export(9, make([]byte, 64), vmmc.GlobalSpace()); !errors.Is(err, vmmc.ErrBadArg) || !strings.Contains(err.Error(), "buffer 9") {
		t.Errorf("a slice of the heap: %v, want %v", err, vmmc.ErrBadArg)
	}
	other := open(t, start(t))
	if _, err := other.Export(9, m.Bytes(), vmmc.GlobalSpace()); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("another process's allocation: %v, want %v", err, vmmc.ErrBadArg)
	}
}

// An allocation is shared for reading or for writing.
func TestSharedPagesHaveOneRight(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	p := vmmc.PageSize()
	mem := alloc(t, b, 4*p)
	part(t, b, a, 1, mem[:p], "mapped", vmmc.SharePages(), vmmc.ReadOnly())
	if _, err := b.Export(2, mem[p:2*p], vmmc.SharePages()); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a writable one beside a read-only one: %v, want %v", err, vmmc.ErrBadArg)
	}
	part(t, b, a, 2, mem[p:2*p], "mapped", vmmc.SharePages(), vmmc.ReadOnly())
	_, im := part(t, b, a, 3, mem[2*p:3*p], "stream")
	if err := im.Send(t.Context(), word, 0); err != nil {
		t.Errorf("a send that needs no mapping: %v", err)
	}
}

// When one of several exports of an allocation ends, no importer reaches its whole
// pages any more, and the others go on, mapped.
func TestCloseOfASharedPart(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	p := vmmc.PageSize()
	mem := alloc(t, b, 8*p)
	share := vmmc.SharePages()
	first, im1 := part(t, b, a, 1, mem[:2*p+8], "mapped", share)
	middle, im2 := part(t, b, a, 2, mem[2*p+8:5*p], "mapped", share)
	stream, im3 := part(t, b, a, 3, mem[5*p:6*p], "stream")
	_, im4 := part(t, b, a, 4, mem[6*p:7*p+4], "mapped", share)
	all := bypass(t, n.Socket(), b, 2)

	// reached checks which pages an importer that bypasses the library still has.
	step := byte(0)
	reached := func(want ...int) {
		t.Helper()
		step++
		var got []int
		for i := range 8 {
			all.Bytes()[i*p+p/2] = step
			if mem[i*p+p/2] == step {
				got = append(got, i)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages %v are within reach, want %v", got, want)
		}
	}
	ends := func(e *vmmc.Export, im *vmmc.Import) {
		t.Helper()
		before := bytes.Clone(mem)
		stop, traffic := make(chan struct{}), sync.WaitGroup{}
		began := make(chan struct{})
		traffic.Go(func() { // of another export, meanwhile
			buf, got := make([]byte, p), make([]byte, p)
			for i := uint32(1); ; i++ {
				binary.LittleEndian.PutUint32(buf[p-4:], i)
				if err := im4.Send(t.Context(), buf, 4); err != nil {
					t.Errorf("send to an export that lives: %v", err)
				}
				if err := im4.Get(t.Context(), got, 4); err != nil || !bytes.Equal(got, buf) || !bytes.Equal(mem[6*p+4:7*p+4], buf) {
					t.Errorf("message %d to an export that lives is not in its memory (%v)", i, err)
				}
				if i == 10 {
					close(began)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		<-began
		closed(t, e)
		close(stop)
		traffic.Wait()
		if err := eventually(t, func() error { return im.Send(t.Context(), word, 0) }); !errors.Is(err, vmmc.ErrRevoked) {
			t.Errorf("send to the one that ended: %v", err)
		}
		copy(before[6*p+4:], mem[6*p+4:7*p+4])
		if !bytes.Equal(mem, before) {
			t.Error("the memory changed by the end of an export")
		}
	}
	reached(0, 1, 2, 3, 4, 5, 6, 7)
	for i := range mem[:6*p] {
		mem[i] = byte(i)
	}
	ends(first, im1)
	reached(2, 3, 4, 5, 6, 7) // page 2 is the middle one's too
	ends(stream, im3)         // it was not mapped, but within reach
	reached(2, 3, 4, 6, 7)
	ends(middle, im2)
	reached(6, 7)
	if bytes.Contains(all.Bytes()[:6*p], []byte{1, 2, 3, 4}) {
		t.Error("the old pages still show what was there")
	}
	if im4.Path() != vmmc.PathMapped {
		t.Errorf("the one that lives goes by the %s", im4.Path())
	}
}

// What has moved is not in the memory that importers are given: it is never
// mapped, until all of it is renewed.
func TestExportOfMovedPages(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	p := vmmc.PageSize()
	m, err := b.Alloc(4 * p)
	if err != nil {
		t.Fatal(err)
	}
	mem := m.Bytes()
	share := vmmc.SharePages()
	e, _ := part(t, b, a, 1, mem[p:2*p], "mapped", share)
	closed(t, e)
	for _, c := range []struct {
		from, to int
		path     string
		opts     []vmmc.ExportOption
	}{
		{0, p, "mapped", []vmmc.ExportOption{share}},
		{2 * p, 4 * p, "stream", nil},
		{p, 2 * p, "stream", []vmmc.ExportOption{share}},
		{p - 4, p + 4, "stream", []vmmc.ExportOption{share}},
		{2*p - 4, 4 * p, "stream", []vmmc.ExportOption{share}},
		{0, 4 * p, "stream", nil},
		{0, 4 * p, "mapped", nil}, // after the end of the whole
		{p, 2 * p, "mapped", []vmmc.ExportOption{share}},
	} {
		e, im := part(t, b, a, 2, mem[c.from:c.to], c.path, c.opts...)
		want := bytes.Repeat([]byte{byte(c.from / 4), byte(c.to), 3, 4}, (c.to-c.from)/4)
		if err := im.Send(t.Context(), want, 0); err != nil {
			t.Fatal(err)
		}
		if err := im.Fence(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem[c.from:c.to], want) {
			t.Errorf("what was sent to %d-%d is not there", c.from, c.to)
		}
		closed(t, e)
		if !bytes.Equal(mem[c.from:c.to], want) {
			t.Errorf("what was sent to %d-%d is not there after its end", c.from, c.to)
		}
		if c.from == 0 && c.to == p { // its page has moved, too: begin anew
			whole, _ := part(t, b, a, 3, mem, "stream")
			closed(t, whole)
			again, _ := part(t, b, a, 1, mem[p:2*p], "mapped", share)
			closed(t, again)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// Exports that share pages end and begin at once, while others send: what was
// reported as sent is there, and nothing comes later into pages that are an
// export's alone.
func TestSharedPartsEndAtOnce(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	const parts = 4
	for round := range 20 {
		each := vmmc.PageSize() * 3 / 2 // one and a half: each has a page of its own, and two share one
		if round%2 == 1 {
			each = vmmc.PageSize() / 4 // all share one
		}
		m, err := b.Alloc(parts * each)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range parts {
			mem := m.Bytes()[i*each : (i+1)*each]
			own := mem[:each/3*2] // the page that is its alone; odd parts begin in the middle of one
			if i%2 == 1 {
				own = mem[each/3:]
			}
			if each < vmmc.PageSize() {
				own = nil
			}
			all.Go(func() {
				for again := range 2 {
					e, err := b.Export(uint32(round*parts+i), mem, vmmc.SharePages())
					if err != nil {
						t.Error(err)
						return
					}
					im, err := a.Import(t.Context(), b.Node(), b.PID(), e.ID())
					if err != nil {
						t.Error(err)
						return
					}
					base := uint32(again) << 20
					sent, began := make(chan uint32), make(chan struct{})
					go func() {
						last := base
						defer func() { sent <- last }()
						buf := make([]byte, each)
						for i := base + 1; ; i++ {
							for j := 0; j < each; j += 4 {
								binary.LittleEndian.PutUint32(buf[j:], i)
							}
							if err := im.Send(t.Context(), buf, 0); err != nil {
								if !errors.Is(err, vmmc.ErrRevoked) {
									t.Errorf("send to a closed export: %v", err)
								}
								return
							}
							if last = i; i == base+20 {
								close(began)
							}
						}
					}()
					<-began
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					w := binary.LittleEndian.Uint32(mem[each-4:])
					kept := bytes.Clone(own)
					last := <-sent
					if im.Path() == vmmc.PathMapped && w < last {
						t.Errorf("message %d was reported as delivered, the memory has %d", last, w)
					}
					if !bytes.Equal(own, kept) {
						t.Error("the memory changed after the end of its export")
					}
				}
			})
		}
		all.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
