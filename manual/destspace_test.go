package manual

import (
	"errors"
	"math"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

// The addresses end before 2^64, what was removed is not given out again, and a space without
// addresses keeps those that it gave out.
func TestDestSpaceIsUsedUp(t *testing.T) {
	const size = 64
	p, err := vmmc.Open(t.Context(), node.Embed())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Export(1, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(t.Context(), p.Node(), p.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	d := DestSpace{next: math.MaxUint64 - firstAddr - 4*between}
	first, err := d.Add(im)
	if err != nil {
		t.Fatal(err)
	}
	d.Remove(im)
	last, err := d.Add(im)
	if err != nil || last < first+size {
		t.Fatalf("the second range begins at %v, the removed one at %v: %v", last, first, err)
	}
	if a, err := d.Add(im); !errors.Is(err, ErrNoVirtDestSpace) {
		t.Errorf("beyond the last address: %v, %v", a, err)
	}
	if _, _, err := d.Lookup(first); !errors.Is(err, vmmc.ErrBadProxyAddr) {
		t.Errorf("the removed range: %v", err)
	}
	for off := range ProxyAddr(size) {
		if got, at, err := d.Lookup(last + off); got != im || at != int(off) || err != nil {
			t.Fatalf("looked up %v at %d of the last range: %d, %v", got, off, at, err)
		}
	}
	if err := d.Send(t.Context(), []byte("last"), last+size-4); err != nil {
		t.Error(err)
	}
}
