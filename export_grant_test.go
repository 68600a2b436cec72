package vmmc_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// After 2^32 grants the handles begin anew. Those that are in use are skipped: a send reaches the
// export that its import was made of, and closing an import ends no other one.
func TestHandlesBeginAnew(t *testing.T) {
	const held, more = 5, 5
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			exporter := join(t, far)
			importers := []*vmmc.Process{join(t, near), join(t, near)}
			var mems [][]byte
			var imports []*vmmc.Import
			importNext := func(p *vmmc.Process) {
				t.Helper()
				id := uint32(len(mems) + 1)
				mem := alloc(t, exporter, 4096)
				var opts []vmmc.ExportOption
				switch {
				case id%2 == 0:
					opts = append(opts, vmmc.Redirectable(), vmmc.ManySenders())
				case way != "mapped":
					opts = append(opts, vmmc.Unmapped())
				}
				if _, err := exporter.Export(id, mem, opts...); err != nil {
					t.Fatal(err)
				}
				im, err := p.Import(within(t), exporter.Node(), exporter.PID(), id)
				if err != nil {
					t.Fatalf("import %d: %v", id, err)
				}
				mems, imports = append(mems, mem), append(imports, im)
			}
			sendAll := func(from int) {
				t.Helper()
				for i, im := range imports[from:] {
					i += from
					if err := im.Send(within(t), w32(uint32(100+i)), 0); err != nil {
						t.Fatalf("send to buffer %d: %v", i+1, err)
					}
					if err := im.Fence(within(t)); err != nil {
						t.Fatalf("fence of buffer %d: %v", i+1, err)
					}
				}
				for i, mem := range mems {
					if got := binary.LittleEndian.Uint32(mem); got != uint32(100+i) {
						t.Errorf("buffer %d has %d, want %d", i+1, got, 100+i)
					}
				}
			}
			for i := range held {
				importNext(importers[i%2])
			}
			sendAll(0)
			vmmc.SetLastHandle(exporter, math.MaxUint32-1)
			for i := range more {
				importNext(importers[i%2])
			}
			sendAll(0)
			for _, im := range imports[held:] {
				if err := im.Close(); err != nil {
					t.Fatal(err)
				}
			}
			imports = imports[:held]
			sendAll(0)
		})
	}
}

// An importer that says it gave its import back, and uses it all the same, must
// not outlast the export by that.
func TestGrantGivenBackAndUsed(t *testing.T) {
	w := newVictim(t)
	o := newOutlaw(t, w.socket, 1, nil)
	mem := alloc(t, w.b, size)
	e, err := w.b.Export(70, mem)
	if err != nil {
		t.Fatal(err)
	}
	g := o.grab(t, w.b, 70)
	r := o.attack(t, g.Exporter)
	back := nodeproto.ReleaseRequest{Exporter: g.Exporter, Handle: g.Handle}
	if _, err := o.Call(t.Context(), nodeproto.Release, back, nil, nil); err != nil {
		t.Fatalf("giving it back: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	_ = r.say(t, frame(wire.Header{Type: wire.Data, Flags: wire.Last, Handle: g.Handle, Seq: 1, Size: 4, Word: 0x600d}, nil))
	r.answers(t) // it has taken that
	if mem[0] != 0 {
		t.Error("the memory was changed after its export's end")
	}
	if _, err := o.Call(t.Context(), nodeproto.Release, back, nil, nil); err != nil {
		t.Errorf("giving it back twice: %v", err)
	}
	w.goesOn(t)
}

// An export that ends at once after it was imported: the importer is told, also
// between nodes, where its link begins at the exporter a little later than at the
// importer.
func TestExportThatEndsAtOnce(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			for range 20 {
				a, b := join(t, near), join(t, far)
				e, err := b.Export(7, make([]byte, 64))
				if err != nil {
					t.Fatal(err)
				}
				im, err := a.Import(t.Context(), b.Node(), b.PID(), 7)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				err = eventually(t, func() error { return im.Fence(t.Context()) })
				if !errors.Is(err, vmmc.ErrRevoked) {
					t.Fatalf("%v, want %v", err, vmmc.ErrRevoked)
				}
			}
		})
	}
}
