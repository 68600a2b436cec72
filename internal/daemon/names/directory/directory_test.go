package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

func TestDirectoryStates(t *testing.T) {
	if err := dirTransitions.Walk(serving, func(from, to dirState) dirState {
		d := &Directory{state: from}
		d.setState(to)
		return d.state
	}); err != nil {
		t.Error(err)
	}
}

func key(name string) Key { return Key{Scope: Scope{User: "u"}, Name: name} }

// The directory nodes are the same whatever the order of the list, are spread evenly, and a node
// that is added takes the place of one of them at most.
func TestSet(t *testing.T) {
	var nodes []string
	for i := range 20 {
		nodes = append(nodes, fmt.Sprint("n", i))
	}
	v := NewView(nodes)
	more := NewView(append([]string{"new"}, nodes...))
	slices.Reverse(nodes)
	again := NewView(nodes)
	if again.Digest != v.Digest || more.Digest == v.Digest {
		t.Error("the digest is not of the set of nodes")
	}
	of := map[string]int{}
	for i := range 2000 {
		k := key(fmt.Sprint("q", i))
		set := v.Set(k)
		if !slices.Equal(set, again.Set(k)) || len(set) != 3 {
			t.Fatalf("%v: %q and %q", k, set, again.Set(k))
		}
		left := slices.DeleteFunc(more.Set(k), func(n string) bool { return n == "new" })
		if !slices.Equal(left, set[:len(left)]) {
			t.Fatalf("%v: %q, and with another node %q", k, set, more.Set(k))
		}
		for _, n := range set {
			of[n]++
		}
	}
	for n, names := range of {
		if names < 200 || names > 400 {
			t.Errorf("%s is a directory node of %d names of 2000, want some 300", n, names)
		}
	}
	for size, want := range map[int]int{1: 1, 2: 1, 3: 3} {
		if set := NewView(nodes[:size]).Set(key("q")); len(set) != want || quorum(set) != (want+1)/2 {
			t.Errorf("%d nodes: %d directory nodes, of which %d decide", size, len(set), quorum(set))
		}
	}
}

// TestOneOwner does anything to five nodes: claims, ends, cuts, daemons that are killed and started,
// with and without their files. No name ever has two owners, and when all is well again each name
// that is held is found, and each other one is free.
func TestOneOwner(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(base, "") // no run begins with another one's files
		if err != nil {
			r.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) { oneOwner(t, r, dir) })
	})
}

func oneOwner(t *testing.T, r *rapid.T, dir string) {
	s := newSim(t, 5, dir)
	defer s.close()
	down := map[string]*simNode{}
	var pid uint32
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan struct{})
	claims := 0
	check := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		owners := map[Key][]string{}
		for _, n := range s.nodes {
			for _, held := range n.held() {
				owners[held.Key] = append(owners[held.Key], fmt.Sprint(held.Owner))
			}
		}
		for _, n := range down {
			for _, held := range n.held() {
				owners[held.Key] = append(owners[held.Key], fmt.Sprint(held.Owner))
			}
		}
		for k, o := range owners {
			if len(o) > 1 {
				r.Fatalf("%v has the owners %q", k, o)
			}
		}
	}
	for range rapid.IntRange(1, 40).Draw(r, "steps") {
		name := s.names[rapid.IntRange(0, 4).Draw(r, "node")]
		n := s.node(name)
		switch rapid.IntRange(0, 7).Draw(r, "what") {
		case 0, 1, 2:
			if n != nil {
				pid++
				q := fmt.Sprint("q", rapid.IntRange(0, 1).Draw(r, "name"))
				p := pid
				claims++
				go func() { _, _ = n.publish(ctx, q, p, false); done <- struct{}{} }()
			}
		case 3:
			if n != nil {
				for _, held := range n.held() {
					n.end(held)
				}
			}
		case 4:
			other := s.names[rapid.IntRange(0, 4).Draw(r, "other")]
			s.mu.Lock()
			s.cut[[2]string{name, other}] = !s.cut[[2]string{name, other}]
			s.mu.Unlock()
		case 5:
			if n != nil && len(down) < 2 {
				killed := s.kill(name)
				killed.mu.Lock()
				for u, h := range killed.has { // claims end with the daemon
					if h == HoldsClaim {
						delete(killed.has, u)
						delete(killed.own, u)
					}
				}
				killed.mu.Unlock()
				down[name] = killed
			}
		case 6:
			if before := down[name]; before != nil {
				delete(down, name)
				if rapid.Bool().Draw(r, "machine") { // it was started again: nothing is left
					if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
						r.Fatal(err)
					}
					s.start(name, nil)
				} else {
					s.start(name, before)
				}
			}
		case 7:
			time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms")) * time.Millisecond)
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 600).Draw(r, "µs")) * time.Microsecond)
		check()
	}
	// All is well again.
	s.mu.Lock()
	clear(s.cut)
	s.mu.Unlock()
	for name, before := range down {
		s.start(name, before)
	}
	clear(down)
	for range claims {
		<-done
	}
	time.Sleep(time.Minute)
	check()
	for _, q := range []string{"q0", "q1"} {
		var owner *simNode
		var held Registration
		for _, name := range s.names {
			n := s.node(name)
			for _, h := range n.held() {
				if h.Name == q {
					owner, held = n, h
				}
			}
		}
		from := s.node(s.names[rapid.IntRange(0, 4).Draw(r, "from")])
		got, err := from.lookup(ctx, q, false)
		switch {
		case owner != nil && (err != nil || got.Owner != held.Owner):
			r.Fatalf("%s of %v is found as %v: %v", q, held.Owner, got.Owner, err)
		case owner == nil && !errors.Is(err, names.ErrAbsent):
			r.Fatalf("%s, which has no owner, is found as %v: %v", q, got.Owner, err)
		}
		pid++
		_, err = from.publish(ctx, q, pid, false)
		if taken := (*names.TakenError)(nil); owner != nil && (!errors.As(err, &taken) || taken.Owner != held.Owner) {
			r.Fatalf("a claim of %s, which %v has: %v", q, held.Owner, err)
		} else if owner == nil && err != nil {
			r.Fatalf("a claim of %s, which has no owner: %v", q, err)
		}
	}
}

// A node that alone decides about a name, since the list of nodes has become shorter, first hears
// from the others: it may have missed a claim to which two of three nodes have agreed.
func TestFewerNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 3, t.TempDir())
		defer s.close()
		fewer := NewView([]string{"n1", "n3"})
		var q string
		for i := 0; q == ""; i++ {
			if k := key(fmt.Sprint("q", i)); slices.Equal(fewer.Set(k), []string{"n3"}) {
				q = k.Name
			}
		}
		for i, n := range s.names { // all serve
			if _, err := s.node(n).publish(t.Context(), fmt.Sprint("other", i), 9, false); err != nil {
				t.Fatal(err)
			}
		}
		quiet()
		s.mu.Lock()
		s.cut[[2]string{"n1", "n3"}], s.cut[[2]string{"n3", "n1"}] = true, true
		s.mu.Unlock()
		if _, err := s.node("n1").publish(t.Context(), q, 1, false); err != nil {
			t.Fatalf("at two of three nodes: %v", err)
		}
		s.kill("n2")
		for _, n := range []string{"n1", "n3"} {
			s.node(n).d.SetView(fewer)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := s.node("n3").publish(soon, q, 2, false); err == nil {
			t.Error("there are two owners")
		}
		s.mu.Lock()
		clear(s.cut)
		s.mu.Unlock()
		quiet()
		if _, err := s.node("n3").publish(t.Context(), q, 3, false); !errors.As(err, new(*names.TakenError)) {
			t.Errorf("when all is well again: %v", err)
		}
		if got, err := s.node("n3").lookup(t.Context(), q, false); err != nil || got.Owner.PID != 1 {
			t.Errorf("the owner is %v: %v", got.Owner, err)
		}
	})
}

// A directory node that was away learns of a name, also if its old owner cannot be asked at first.
func TestOwnerMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 5, t.TempDir())
		defer s.close()
		set := s.node("n1").d.view.Set(key("q"))
		var others []string
		for _, n := range s.names {
			if !slices.Contains(set, n) {
				others = append(others, n)
			}
		}
		x, y := s.node(others[0]), s.node(others[1])
		r, err := x.publish(t.Context(), "q", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		quiet()
		down := s.kill(set[0])
		x.end(r)
		if _, err := y.publish(t.Context(), "q", 2, false); err != nil {
			t.Fatal(err)
		}
		away := s.kill(others[0])
		s.start(set[0], down)
		quiet()
		s.start(others[0], away)
		quiet()
		for _, n := range s.names {
			soon, stop := context.WithTimeout(t.Context(), time.Minute)
			if got, err := s.node(n).lookup(soon, "q", true); err != nil || got.Owner.PID != 2 {
				t.Errorf("on node %s the owner is %v: %v", n, got.Owner, err)
			}
			stop()
		}
	})
}

// Directory nodes that are older than the directory count as away, and are named.
func TestOlderNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 4, t.TempDir())
		defer s.close()
		set := s.node("n1").d.view.Set(key("q"))
		var from *simNode
		for _, n := range s.names {
			if !slices.Contains(set, n) {
				from = s.node(n)
			}
		}
		s.age(set[0])
		r, err := from.publish(t.Context(), "q", 1, false)
		if err != nil {
			t.Fatalf("with one older node: %v", err)
		}
		if _, err := from.lookup(t.Context(), "q", true); err != nil {
			t.Errorf("with one older node: %v", err)
		}
		from.end(r)
		quiet()
		s.age(set[1])
		_, err = from.publish(t.Context(), "q", 2, false)
		if !errors.Is(err, code.NotImplemented) || !strings.Contains(err.Error(), set[0]) || !strings.Contains(err.Error(), set[1]) {
			t.Errorf("with two older nodes: %v", err)
		}
		s.age(set[2])
		if _, err := from.lookup(t.Context(), "q", true); !errors.Is(err, code.NotImplemented) {
			t.Errorf("with older nodes alone: %v", err)
		}
	})
}

// A user's registrations and look-ups are bounded, and leave nothing.
func TestLimits(t *testing.T) {
	var tab table
	tab.journal = &journal{}
	reg := func(user string, i int) Registration {
		return Registration{
			Key:   Key{Scope: Scope{User: user}, Name: fmt.Sprint(i)},
			Owner: nodeproto.ProcessID{Node: "n", PID: 1}, Serial: uint64(i), Order: 1,
		}
	}
	n := 0
	for ; ; n++ {
		if o, _ := tab.register(reg("u", n)); o == Full {
			break
		}
	}
	if n < 10_000 || n > 100_000 {
		t.Errorf("a user has room for %d names", n)
	}
	if o, _ := tab.register(reg("other", 0)); o != Registered {
		t.Errorf("another user: %v", o)
	}
	for i := range maxUserWaits {
		if !tab.enter(key(fmt.Sprint("w", i))) {
			t.Fatalf("only %d look-ups wait", i)
		}
	}
	if tab.enter(key("more")) {
		t.Error("one look-up too many waits")
	}
	for i := range maxUserWaits {
		tab.leave(key(fmt.Sprint("w", i)))
	}
	for i := range n {
		tab.withdraw(reg("u", i))
	}
	tab.withdraw(reg("other", 0))
	if len(tab.names)+len(tab.users)+len(tab.nodes)+len(tab.waits) > 0 {
		t.Errorf("%d names, %d users, %d nodes, %d waits are left", len(tab.names), len(tab.users), len(tab.nodes), len(tab.waits))
	}
}

// FuzzJournal reads any file. What it accepts has a head and each registration once, and is the same
// when it is written and read again.
func FuzzJournal(f *testing.F) {
	r := Registration{Key: key("q"), Owner: nodeproto.ProcessID{Node: "n", PID: 1, Incarnation: 2}, Serial: 3, Order: 4}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, l := range []line{{Boot: "b", Nodes: []string{"m", "n"}}, {Add: &r}, {Drop: &r}, {Add: &r}} {
		_ = enc.Encode(l)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-9])
	f.Add([]byte(`{"Boot":"a","Nodes":["n"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		nodes, left, all, err := parseJournal(bytes.NewReader(b), "b")
		if err != nil {
			return
		}
		if nodes == nil && len(all) > 0 {
			t.Error("registrations without a head")
		}
		for i, r := range all {
			if slices.ContainsFunc(all[:i], r.same) {
				t.Errorf("%+v is there twice", r)
			}
		}
		if nodes == nil {
			return
		}
		var again bytes.Buffer
		if err := (&journal{boot: "b"}).encode(&again, all, nodes, left); err != nil {
			t.Fatal(err)
		}
		nodes2, left2, all2, err := parseJournal(&again, "b")
		slices.SortFunc(all, compare)
		slices.SortFunc(all2, compare)
		if err != nil || !slices.Equal(nodes, nodes2) || !slices.Equal(left, left2) || !slices.Equal(all, all2) {
			t.Errorf("%q and %+v are written and read again as %q and %+v: %v", nodes, all, nodes2, all2, err)
		}
	})
}

// A withdrawal that is told late does not end what the same export has published since.
func TestLateWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 4, t.TempDir())
		defer s.close()
		n := s.node("n1")
		r, err := n.publish(t.Context(), "q", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		quiet()
		late := n.forget(r)
		if _, err := n.publish(t.Context(), "q", 1, false); err != nil {
			t.Fatal(err)
		}
		quiet()
		n.d.Withdraw(late)
		quiet()
		for _, name := range s.names {
			if got, err := s.node(name).lookup(t.Context(), "q", false); err != nil || got.Owner != r.Owner {
				t.Errorf("on node %s the owner is %v: %v", name, got.Owner, err)
			}
		}
	})
}

// A claim whose process ends the name meanwhile makes no further attempt.
func TestClaimEndsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 3, t.TempDir())
		defer s.close()
		n, other := s.node("n1"), s.node("n2")
		r := Registration{
			Key: key("q"), Owner: nodeproto.ProcessID{Node: "n2", PID: 7, Incarnation: 1}, Serial: 1, Order: 1,
		}
		other.mu.Lock() // another process claims the name at this moment
		other.own[update{r.Key, r.export()}], other.has[update{r.Key, r.export()}] = r, HoldsClaim
		other.mu.Unlock()
		for _, name := range s.names {
			s.node(name).d.Update(t.Context(), []Registration{r}, nil)
		}
		done := make(chan error)
		go func() { _, err := n.publish(t.Context(), "q", 1, false); done <- err }()
		time.Sleep(time.Second)
		n.mu.Lock()
		clear(n.own)
		n.mu.Unlock()
		begun := time.Now()
		if err := <-done; err == nil || time.Since(begun) > time.Second { // of virtual time
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// A look-up that does not wait ends if the owner's node denies the name to it, and the directory
// cannot ask that node.
func TestDeniedToOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 6, t.TempDir())
		defer s.close()
		set := s.node("n1").d.view.Set(key("q"))
		var others []string
		for _, n := range s.names {
			if !slices.Contains(set, n) {
				others = append(others, n)
			}
		}
		owner, from := s.node(others[0]), s.node(others[1])
		r, err := owner.publish(t.Context(), "q", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		quiet()
		owner.forget(r)
		s.mu.Lock()
		for _, n := range set {
			s.cut[[2]string{n, others[0]}] = true
		}
		s.mu.Unlock()
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := from.lookup(soon, "q", false); !errors.Is(err, names.ErrAbsent) {
			t.Errorf("a look-up that does not wait: %v", err)
		}
		// One that waits goes on until there is an owner.
		done := make(chan error, 1)
		go func() { _, err := from.lookup(t.Context(), "q", true); done <- err }()
		quiet()
		s.mu.Lock()
		clear(s.cut)
		s.mu.Unlock()
		if _, err := owner.publish(t.Context(), "q", 2, false); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("a look-up that waits: %v", err)
		}
	})
}

// A node that leaves the list of the others and comes back has its names registered again, before
// another process gets one.
func TestNodeComesBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, 4, t.TempDir())
			defer s.close()
			owner := s.node("n4")
			for i := range 20 { // each node is a directory node of some
				if _, err := owner.publish(t.Context(), fmt.Sprint("q", i), uint32(i), false); err != nil {
					t.Fatal(err)
				}
			}
			for i, n := range s.names { // all serve
				if _, err := s.node(n).publish(t.Context(), fmt.Sprint("other", i), 99, false); err != nil {
					t.Fatal(err)
				}
			}
			quiet()
			all := s.names
			without := NewView(all[:3])
			for _, n := range all[:3] {
				s.node(n).d.SetView(without)
			}
			quiet()
			if restart { // of the daemons of directory nodes, which know the nodes that left
				s.names = all[:3]
				for _, n := range all[:3] {
					s.start(n, s.kill(n))
				}
				quiet()
				s.names = all
			}
			for _, n := range all[:3] {
				s.node(n).d.SetView(NewView(all))
			}
			for i := range 20 {
				q := fmt.Sprint("q", i)
				if _, err := s.node("n1").publish(t.Context(), q, 200+uint32(i), false); !errors.As(err, new(*names.TakenError)) {
					t.Errorf("a claim of %s, which a process of n4 has: %v", q, err)
				}
				got, err := s.node("n2").lookup(t.Context(), q, false)
				if err != nil || got.Owner.Node != "n4" {
					t.Errorf("%s is found as %v: %v", q, got.Owner, err)
				}
			}
		})
	}
}

// One node that lies does not take a name from a process of another one.
func TestLyingNodeTakesNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 3, t.TempDir())
		defer s.close()
		n := s.node("n1")
		if _, err := n.publish(t.Context(), "q", 1, false); err != nil {
			t.Fatal(err)
		}
		quiet()
		r := n.held()[0]
		s.liar, s.claim = "n2", r.Owner
		s.claim.Node, s.claim.PID = "n2", 9
		n.d.contest(t.Context(), r)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.lost) > 0 {
			t.Errorf("%q", s.lost)
		}
	})
}

// A name that was given to another process while its owner's node was out of the list of the others
// has one owner soon after the node is back, and the other one is told.
func TestTwoOwners(t *testing.T) {
	for n := 2; n <= 5; n++ {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { twoOwners(t, n) })
		})
	}
}

func twoOwners(t *testing.T, n int) {
	s := newSim(t, n, t.TempDir())
	defer s.close()
	all := s.names
	away, rest := all[n-1], all[:n-1]
	const count = 20 // each node is a directory node of some
	for i := range count {
		if _, err := s.node(away).publish(t.Context(), fmt.Sprint("q", i), uint32(i), false); err != nil {
			t.Fatal(err)
		}
	}
	quiet()
	for _, name := range rest {
		s.node(name).d.SetView(NewView(rest))
	}
	quiet()
	for i := range count {
		if _, err := s.node("n1").publish(t.Context(), fmt.Sprint("q", i), 200+uint32(i), false); err != nil {
			t.Fatalf("a claim of a name whose owner's node was taken out: %v", err)
		}
	}
	quiet()
	for _, name := range rest {
		s.node(name).d.SetView(NewView(all))
	}
	time.Sleep(time.Minute)
	quiet()
	for i := range count {
		q := fmt.Sprint("q", i)
		var owners []uint32
		for _, name := range all {
			for _, r := range s.node(name).held() {
				if r.Name == q {
					owners = append(owners, r.Owner.PID)
				}
			}
		}
		first, second := uint32(i), 200+uint32(i)
		if len(owners) != 1 {
			t.Errorf("%s has the owners %d, want one", q, owners)
			continue
		}
		loser := first + second - owners[0]
		told := fmt.Sprintf("%s of %d to %d", q, loser, owners[0])
		s.mu.Lock()
		if !slices.Contains(s.lost, told) {
			t.Errorf("process %d has %s: that was not told to process %d: %q", owners[0], q, loser, s.lost)
		}
		s.mu.Unlock()
		for _, name := range all {
			if got, err := s.node(name).lookup(t.Context(), q, false); err != nil || got.Owner.PID != owners[0] {
				t.Errorf("%s finds %s at process %d, want %d: %v", name, q, got.Owner.PID, owners[0], err)
			}
		}
	}
	if len(s.lost) != count {
		t.Errorf("%d names were lost, want %d: %q", len(s.lost), count, s.lost)
	}
}

// Two owners whose nodes have two lists do not both lose the name: each has the majority of the nodes
// that the other one asks. One loses it when all nodes have one list.
func TestTwoOwnersOfTwoLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 6, t.TempDir())
		defer s.close()
		half := map[string][]string{"n1": {"n1", "n2", "n3"}, "n6": {"n4", "n5", "n6"}}
		other := map[string]*View{ // with the other owner's nodes, and the own one
			"n1": NewView([]string{"n1", "n4", "n5", "n6"}), "n6": NewView([]string{"n1", "n2", "n3", "n6"}),
		}
		for _, names := range half {
			for _, name := range names {
				s.node(name).d.SetView(NewView(names))
			}
		}
		quiet()
		q := ""
		for i := range 100 { // most of its directory nodes by that list have the other owner, and keep it
			k := key(fmt.Sprint("q", i))
			one, two := other["n1"].Set(k), other["n6"].Set(k)
			if slices.Contains(one, "n4") && slices.Contains(one, "n5") &&
				slices.Contains(two, "n2") && slices.Contains(two, "n3") {
				q = k.Name
			}
		}
		for owner := range half {
			if _, err := s.node(owner).publish(t.Context(), q, 1, false); err != nil {
				t.Fatal(err)
			}
		}
		quiet()
		for owner, view := range other {
			s.node(owner).d.SetView(view)
		}
		quiet()
		owners := func() int { return len(s.node("n1").held()) + len(s.node("n6").held()) }
		if owners() != 2 {
			t.Errorf("while the nodes have two lists %d of two owners have the name: %q", owners(), s.lost)
		}
		for _, name := range s.names {
			s.node(name).d.SetView(NewView(s.names))
		}
		quiet()
		quiet()
		if owners() != 1 {
			t.Errorf("when the nodes have one list %d of two owners have the name: %q", owners(), s.lost)
		}
	})
}

// A directory node that does not answer look-ups delays each contest. Other names are told of
// meanwhile, and the contests do not wait for each other.
func TestContestsHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 5, t.TempDir())
		defer s.close()
		all, rest := s.names, s.names[:4]
		const count = 30
		for i := range count {
			if _, err := s.node("n5").publish(t.Context(), fmt.Sprint("q", i), uint32(i), false); err != nil {
				t.Fatal(err)
			}
		}
		quiet()
		for _, name := range rest {
			s.node(name).d.SetView(NewView(rest))
		}
		quiet()
		for i := range count {
			if _, err := s.node("n1").publish(t.Context(), fmt.Sprint("q", i), 200+uint32(i), false); err != nil {
				t.Fatal(err)
			}
		}
		quiet()
		s.mu.Lock()
		for _, name := range rest[1:] {
			s.mute[[2]string{"find", name}] = true
		}
		s.mu.Unlock()
		for _, name := range rest {
			s.node(name).d.SetView(NewView(all))
		}
		time.Sleep(time.Second) // the contests have begun
		later, err := s.node("n5").publish(t.Context(), "later", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, name := range NewView(all).Set(later.Key) {
			if !s.node(name).d.table.has(later) {
				t.Errorf("%s is not told of another name while names are contested", name)
			}
		}
		s.mu.Lock()
		clear(s.mute)
		s.mu.Unlock()
		time.Sleep(30 * time.Second)
		if n := len(s.node("n1").held()) + len(s.node("n5").held()); n != count+1 {
			t.Errorf("%d names have owners when all nodes answer, want %d", n, count+1)
		}
	})
}

// A node that is new in the list holds nothing up while it cannot be reached.
func TestNewNodeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 3, t.TempDir())
		defer s.close()
		if _, err := s.node("n1").publish(t.Context(), "q", 1, false); err != nil {
			t.Fatal(err)
		}
		quiet()
		more := NewView(append(slices.Clone(s.names), "n9"))
		for _, n := range s.names {
			s.node(n).d.SetView(more)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for i := range 20 {
			if _, err := s.node("n2").publish(soon, fmt.Sprint("new", i), 2+uint32(i), false); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Processes of one user that may come back, and have not, hold up claims of that user alone.
func TestAbsentProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 3, "")
		defer s.close()
		away := s.node("n3")
		away.mu.Lock()
		away.absent["v"] = true
		away.mu.Unlock()
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := s.node("n1").publish(soon, "q", 1, false); err != nil { // of user u
			t.Errorf("another user: %v", err)
		}
		r := Registration{
			Key: key("q"), Owner: nodeproto.ProcessID{Node: "n1", PID: 2, Incarnation: 1}, Serial: 1,
		}
		r.User = "v"
		claim := func(ctx context.Context) error {
			return s.node("n1").d.Acquire(ctx, r, func() (uint64, error) { r.Order++; return r.Order, nil })
		}
		if err := claim(t.Context()); !errors.Is(err, code.Unreachable) || !strings.Contains(err.Error(), `user "v"`) {
			t.Errorf("the user: %v", err)
		}
		away.mu.Lock()
		clear(away.absent)
		away.mu.Unlock()
		if err := claim(t.Context()); err != nil {
			t.Errorf("when they have come back: %v", err)
		}
	})
}

// Registrations of names that ended without a withdrawal make room when room is needed, and keep no
// node from serving.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 2, t.TempDir())
		defer s.close()
		dir := NewView(s.names).Set(key("q"))[0]
		n := s.node("n1")
		if _, err := n.publish(t.Context(), "held", 1, false); err != nil {
			t.Fatal(err)
		}
		if _, err := n.publish(t.Context(), "q", 1, false); err != nil {
			t.Fatal(err)
		}
		quiet()
		d := s.node(dir).d
		fill(d, "u", "n2")
		d.table.mu.Lock()
		left := len(d.table.names)
		d.table.mu.Unlock()
		if left < 10_000 {
			t.Fatalf("%d names fill the table", left)
		}
		var q string
		for i := 0; q == ""; i++ {
			if k := key(fmt.Sprint("more", i)); NewView(s.names).Set(k)[0] == dir {
				q = k.Name
			}
		}
		if _, err := n.publish(t.Context(), q, 2, false); err != nil {
			t.Errorf("a claim that needs room: %v", err)
		}
		for _, name := range []string{"held", "q", q} {
			if got, err := s.node("n2").lookup(t.Context(), name, false); err != nil || got.Owner.Node != "n1" {
				t.Errorf("%s is found as %v: %v", name, got.Owner, err)
			}
		}
	})
}

// fill registers names that no process has, until there is no room for another one of the user.
func fill(d *Directory, user, node string) {
	for i := 0; ; i++ {
		r := Registration{
			Key:   Key{Scope: Scope{User: user}, Name: fmt.Sprint("stale", i)},
			Owner: nodeproto.ProcessID{Node: node, PID: 9, Incarnation: 1}, Serial: uint64(i),
		}
		if o, _ := d.table.register(r); o == Full {
			return
		}
	}
}

// A user with more names than a directory node has room for cannot claim others there. Other
// users can.
func TestNoRoomToHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 2, t.TempDir())
		defer s.close()
		n := s.node("n1")
		held := Registration{
			Key:   Key{Scope: Scope{User: "v"}, Name: "q0"},
			Owner: nodeproto.ProcessID{Node: "n1", PID: 9, Incarnation: 1}, Serial: 1,
		}
		n.mu.Lock()
		n.own[update{held.Key, held.export()}], n.has[update{held.Key, held.export()}] = held, HoldsName
		n.mu.Unlock()
		for _, name := range s.names { // all of the user's room is taken
			tab := &s.node(name).d.table
			other := held
			other.Name = "other"
			tab.register(other)
			tab.mu.Lock()
			tab.count(other, maxUserBytes)
			tab.mu.Unlock()
		}
		for i := range 10 { // of user u, some at each node
			if _, err := s.node("n2").publish(t.Context(), fmt.Sprint("q", i), uint32(i)+1, false); err != nil {
				t.Fatalf("another user: %v", err)
			}
		}
		r := Registration{
			Key:   Key{Scope: Scope{User: "v"}, Name: "q0"},
			Owner: nodeproto.ProcessID{Node: "n2", PID: 1, Incarnation: 1}, Serial: 1,
		}
		err := s.node("n2").d.Acquire(t.Context(), r, func() (uint64, error) { r.Order++; return r.Order, nil })
		if err == nil {
			t.Error("a name has two owners")
		}
	})
}

// A directory node that has forgotten all does not let a claim have the name that it has heard
// first, if another process has the name or had the consent of that node before.
func TestClaimIsHeardFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 5, "")
		defer s.close()
		set := s.node("n1").d.view.Set(key("q"))
		var others []string
		for _, n := range s.names {
			if !slices.Contains(set, n) {
				others = append(others, n)
			}
		}
		slices.Sort(others)
		claimer, owner := s.node(others[0]), s.node(others[1])
		for i := range 20 { // all serve
			if _, err := owner.publish(t.Context(), fmt.Sprint("other", i), 50+uint32(i), false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := owner.publish(t.Context(), "q", 1, false); err != nil {
			t.Fatal(err)
		}
		quiet()
		// The owner's list is late: the claim of another process is heard first.
		s.mu.Lock()
		for _, n := range set {
			s.cut[[2]string{n, owner.name}] = true
		}
		s.mu.Unlock()
		done := make(chan error)
		r := Registration{
			Key: key("q"), Owner: nodeproto.ProcessID{Node: claimer.name, PID: 2, Incarnation: 1}, Serial: 1,
		}
		u := update{r.Key, r.export()}
		claimer.mu.Lock()
		claimer.own[u], claimer.has[u] = r, HoldsClaim
		claimer.mu.Unlock()
		for _, n := range set[:2] { // the machines are started again
			s.kill(n)
			s.start(n, nil)
		}
		go func() { _, err := claimer.publish(t.Context(), "q", 2, false); done <- err }()
		time.Sleep(time.Second)
		s.mu.Lock()
		clear(s.cut)
		s.mu.Unlock()
		if err := <-done; err == nil {
			t.Error("the name has two owners")
		}
		quiet()
		for _, n := range s.names {
			if got, err := s.node(n).lookup(t.Context(), "q", false); err != nil || got.Owner.PID != 1 {
				t.Errorf("on node %s the owner is %v: %v", n, got.Owner, err)
			}
		}
	})
}

// A directory node that has forgotten all hears the owner of a name, and then a claim that it had
// consented to. It consents to no other claim while that one is under way, also when the owner has
// ended the name. Meanwhile it says at once that the name is taken.
func TestConsentIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 5, "")
		defer s.close()
		set := s.node("n1").d.view.Set(key("q"))
		var others []string
		for _, n := range s.names {
			if !slices.Contains(set, n) {
				others = append(others, n)
			}
		}
		slices.Sort(others)
		claimer, owner := s.node(others[0]), s.node(others[1])
		for i := range 20 { // all serve
			if _, err := owner.publish(t.Context(), fmt.Sprint("other", i), 50+uint32(i), false); err != nil {
				t.Fatal(err)
			}
		}
		quiet()
		cut := func(pairs ...[2]string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.cut)
			for _, p := range pairs {
				s.cut[p] = true
			}
		}

		// The first directory node hears nothing of the owner, and consents to the claim of another
		// process, which goes on.
		cut([2]string{owner.name, set[0]}, [2]string{set[0], owner.name})
		held, err := owner.publish(t.Context(), "q", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		claim := func(pid uint32) Registration {
			return Registration{
				Key: key("q"), Owner: nodeproto.ProcessID{Node: claimer.name, PID: pid, Incarnation: 1}, Serial: 1,
			}
		}
		r := claim(2)
		claimer.mu.Lock()
		*claimer.order++
		r.Order = *claimer.order
		u := update{r.Key, r.export()}
		claimer.own[u], claimer.has[u] = r, HoldsClaim
		claimer.mu.Unlock()
		digest := claimer.d.view.Digest
		if a := s.node(set[0]).d.Claim(t.Context(), digest, r); a.Outcome != Registered {
			t.Fatalf("the first directory node: %+v", a)
		}

		// Its machine is started again. A claim waits there, until it has heard the owner.
		cut([2]string{owner.name, set[0]}, [2]string{set[0], owner.name}, [2]string{set[0], claimer.name})
		s.kill(set[0])
		first := s.start(set[0], nil).d
		refused := func(when string) {
			t.Helper()
			begun := time.Now()
			a := first.Claim(t.Context(), digest, claim(3))
			if a.Outcome != Taken || a.Owner != held.Owner || time.Since(begun) >= patience {
				t.Errorf("%s a claim is answered after %v: %+v", when, time.Since(begun), a)
			}
		}
		time.AfterFunc(100*time.Millisecond, func() { cut([2]string{set[0], claimer.name}) })
		refused("before the owner was heard")
		cut()
		quiet()
		refused("after a refused claim was heard")

		// The owner ends the name, and another process claims it.
		owner.end(held)
		quiet()
		cut([2]string{owner.name, set[1]})
		_, err = owner.publish(t.Context(), "q", 4, false)
		if a := s.node(set[1]).d.Claim(t.Context(), digest, r); a.Outcome != Registered {
			t.Fatalf("the second directory node: %+v", a)
		}
		if err == nil {
			t.Error("the name has two owners: two directory nodes have consented to each")
		}
	})
}
