package daemon

import (
	"os"
	"testing"
)

// What is left counts what processes will bring, and what is above a low number that was free again.
func TestDescriptorsLeft(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	there := int(f.Fd())
	limit := 48 + 2*there
	d := descriptors{limit: limit, others: limit}
	var came []func()
	take := func(want spare, holds int) (n int) {
		for {
			letGo := d.hold(heldByMember)
			left := d.after(f)
			letGo()
			if left != want {
				return n
			}
			if n++; n > limit {
				t.Fatalf("%d are held of %d, and that makes no difference", d.held, limit)
			}
			came = append(came, d.hold(holds))
		}
	}
	free := func() int { return limit - there - d.held }
	if n := take(plenty, heldByMember); n == 0 || free() < d.kept() || free() >= d.kept()+heldByMember {
		t.Errorf("%d processes are there, and leave %d descriptors of %d; %d are kept", n, free(), limit, d.kept())
	}
	if n := take(few, heldByTold); n == 0 || free() < d.kept()/2 {
		t.Errorf("%d processes are told, and leave %d descriptors of %d; %d are kept", n, free(), limit, d.kept())
	}
	for _, letGo := range came {
		letGo()
		letGo() // only once
	}
	if d.held != 0 || d.after(f) != plenty {
		t.Errorf("%d are held, by nobody", d.held)
	}
}
