package daemon

import (
	"os"
	"sync"
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

// One user cannot have all connections, and what one user has is not taken from another one.
func TestConnectionsOfAUser(t *testing.T) {
	d := descriptors{limit: 1000}
	const one, two = 4711, 4712
	var leave []func()
	for {
		l, ok := d.admit(one)
		if !ok {
			break
		}
		if leave = append(leave, l); len(leave) > d.limit {
			t.Fatal("a user may have any number of connections")
		}
	}
	if n := len(leave) * heldByMember; n != d.limit/2 {
		t.Errorf("the connections of one user hold %d descriptors of %d, want half", n, d.limit)
	}
	for name, uid := range map[string]uint32{"another user": two, "root": 0, "the node's own user": uint32(os.Getuid())} {
		if l, ok := d.admit(uid); !ok {
			t.Errorf("%s has no connection left", name)
		} else {
			l()
		}
	}
	leave[0]()
	leave[0]() // only once
	if _, ok := d.admit(one); !ok {
		t.Error("a connection that has ended is counted")
	}
	if _, ok := d.admit(one); ok {
		t.Error("a connection that has ended was counted twice as such")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if l, ok := d.admit(two); ok {
				l()
			}
		})
	}
	wg.Wait()
	if n := d.users[two]; n != 0 {
		t.Errorf("%d connections of a user are left that has none", n)
	}
}
