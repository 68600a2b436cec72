package ingress

import (
	"os"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// What is left counts what processes will bring, and what is above a low number that was free
// again.
func TestDescriptorsLeft(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	there := int(f.Fd())
	limit := 48 + 2*there
	d := Descriptors{limit: limit, lowestOther: limit}
	var came []func()
	take := func(want Headroom, holds int) (n int) {
		for {
			letGo := d.ReserveFor(HeldByMember)
			left := d.HeadroomAfter(f)
			letGo()
			if left != want {
				return n
			}
			if n++; n > limit {
				t.Fatalf("%d are held of %d, and that makes no difference", d.held, limit)
			}
			came = append(came, d.ReserveFor(holds))
		}
	}
	free := func() int { return limit - there - d.held }
	if n := take(Plenty, HeldByMember); n == 0 || free() < d.reserve() ||
		free() >= d.reserve()+HeldByMember {
		t.Errorf("%d processes are there, and leave %d descriptors of %d; %d are kept", n, free(), limit,
			d.reserve())
	}
	if n := take(ReserveOnly, HeldByRefused); n == 0 || free() < d.reserve()/2 {
		t.Errorf("%d processes are told, and leave %d descriptors of %d; %d are kept", n, free(), limit,
			d.reserve())
	}
	for _, letGo := range came {
		letGo()
		letGo() // only once
	}
	if d.held != 0 || d.HeadroomAfter(f) != Plenty {
		t.Errorf("%d are held, by no process", d.held)
	}
}

// One user cannot have all connections, and what one user has is not taken from another one.
func TestConnectionsOfAUser(t *testing.T) {
	d := Descriptors{limit: 1000}
	const one, two = 4711, 4712
	var leave []func()
	for {
		l, ok := d.AdmitUser(one)
		if !ok {
			break
		}
		if leave = append(leave, l); len(leave) > d.limit {
			t.Fatal("a user may have any number of connections")
		}
	}
	if n := len(leave) * HeldByMember; n != d.limit/2 {
		t.Errorf("the connections of one user hold %d descriptors of %d, want half", n, d.limit)
	}
	for name, uid := range map[string]uint32{
		"another user": two, "root": 0, "the node's own user": uint32(os.Getuid()),
	} {
		if l, ok := d.AdmitUser(uid); !ok {
			t.Errorf("%s has no connection left", name)
		} else {
			l()
		}
	}
	leave[0]()
	leave[0]() // only once
	if _, ok := d.AdmitUser(one); !ok {
		t.Error("a connection that has ended is counted")
	}
	if _, ok := d.AdmitUser(one); ok {
		t.Error("a connection that has ended was counted twice as such")
	}
	for _, l := range leave {
		l()
	}
	// What is slow to close counts as long as it is open, also connections that have ended.
	from := foreign.User(two)
	defer from.Release()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var parked []int
	for range d.limit / 2 {
		fd, err := unix.Borrow(r)
		if err != nil {
			t.Fatal(err)
		}
		parked = append(parked, fd)
	}
	from.Took(parked...)
	if _, ok := d.AdmitUser(two); ok {
		t.Error("a user has a connection beside half of the descriptors")
	}
	if _, ok := d.AdmitUser(one); !ok {
		t.Error("another user's descriptors are counted")
	}
	foreign.Close(parked...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if l, ok := d.AdmitUser(two); ok {
				l()
			}
		})
	}
	wg.Wait()
	if n := d.users[two]; n != 0 {
		t.Errorf("%d connections of a user are left that has none", n)
	}
}
