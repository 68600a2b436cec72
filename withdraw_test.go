package vmmc_test

import (
	"testing"

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
