package vmmc_test

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An importer that says it gave its import back, and uses it all the same, must
// not outlast the export by that.
func TestGrantGivenBackAndUsed(t *testing.T) {
	w := newTown(t)
	o := newOutlaw(t, w.socket, 1, nil)
	mem := alloc(t, w.b, size)
	e, err := w.b.Export(70, mem)
	if err != nil {
		t.Fatal(err)
	}
	g := o.grab(t, w.b, 70)
	r := o.raid(t, g.Exporter)
	back := local.ReleaseRequest{Exporter: g.Exporter, Handle: g.Handle}
	if _, err := o.Call(t.Context(), local.Release, back, nil, nil); err != nil {
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
	if _, err := o.Call(t.Context(), local.Release, back, nil, nil); err != nil {
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
