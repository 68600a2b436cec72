package names

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestEntryStates(t *testing.T) {
	if err := entryTransitions.Walk(entryEnded, func(from, to entryState) entryState {
		e := &Entry{state: from}
		e.setState(to)
		return e.state
	}); err != nil {
		t.Error(err)
	}
}

func key(name string) Key { return Key{Scope: Scope{"u", "s"}, Name: name} }

func owner(pid uint32) *Owner {
	return &Owner{ID: nodeproto.ProcessID{Node: "n", PID: pid}, Alive: func() bool { return true }}
}

func of(serial uint64) nodeproto.PublishRequest {
	return nodeproto.PublishRequest{ID: uint32(serial), Serial: serial}
}

func inSet(serial uint64) nodeproto.PublishRequest {
	r := of(serial)
	r.Set = true
	return r
}

func hold(t *testing.T, tab *Table, k Key, o *Owner, r nodeproto.PublishRequest) *Entry {
	t.Helper()
	e, held, err := tab.Claim(t.Context(), k, o, r)
	if err == nil && !held {
		err = tab.Settle(t.Context(), e, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func admitAll(*Entry) error { return nil }

// A name has one owner, whom an error names, and goes with its export and its process.
func TestClaim(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	e := hold(t, &tab, key("x"), a, of(1))
	if again := hold(t, &tab, key("x"), a, of(1)); again != e {
		t.Error("the second claim of an export is another entry")
	}
	taken := func(o *Owner, r nodeproto.PublishRequest, by uint32) {
		t.Helper()
		var err *TakenError
		if _, _, got := tab.Claim(t.Context(), key("x"), o, r); !errors.As(got, &err) ||
			err.Owner.PID != by || !errors.Is(got, code.NameTaken) {
			t.Errorf("a claim of process %d: %v", o.ID.PID, got)
		}
	}
	taken(b, of(1), 1)
	taken(b, inSet(1), 1)
	taken(a, of(2), 1)
	taken(a, inSet(1), 1)
	other := key("x")
	other.Session = "other"
	hold(t, &tab, other, b, of(1))
	tab.EndExport(a, 1)
	hold(t, &tab, key("x"), b, of(2))
	taken(a, of(2), 2)
	tab.Drop(b)
	hold(t, &tab, key("x"), a, of(2))
	_ = tab.Withdraw(t.Context(), a, key("x"), 1)
	if len(tab.Find(key("x"))) != 1 {
		t.Error("another export's name was taken away")
	}
	if _, _, err := tab.Claim(t.Context(), key("y"), b, of(1)); !errors.Is(err, code.NoDaemon) {
		t.Errorf("a claim of a process that has left: %v", err)
	}
	_ = tab.Withdraw(t.Context(), a, key("x"), 2)
	if len(tab.users) != 0 {
		t.Errorf("%d users are left", len(tab.users))
	}
}

// A claim waits for another one that is under way, and for the removal of an owner that has ended.
func TestClaimWaits(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	first, _, err := tab.Claim(t.Context(), key("x"), a, of(1))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, o := range []*Owner{a, b} {
		if _, _, err := tab.Claim(ended, key("x"), o, of(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("a second claim by process %d: %v", o.ID.PID, err)
		}
	}
	claims := make(chan error)
	claim := func() {
		e, _, err := tab.Claim(t.Context(), key("x"), b, of(1))
		if err == nil {
			err = tab.Settle(t.Context(), e, nil)
		}
		claims <- err
	}
	go claim()
	if err := tab.Settle(t.Context(), first, code.New(code.Timeout, "late")); !errors.Is(err, code.Timeout) {
		t.Errorf("the end of a claim: %v", err)
	}
	if err := <-claims; err != nil {
		t.Error(err)
	}
	alive := make(chan bool)
	b.Alive = func() bool { return <-alive }
	again := make(chan error)
	go func() {
		e, _, err := tab.Claim(t.Context(), key("x"), a, of(1))
		if err == nil {
			err = tab.Settle(t.Context(), e, nil)
		}
		again <- err
	}()
	alive <- false
	tab.Drop(b)
	if err := <-again; err != nil {
		t.Errorf("the claim of a name whose owner has just ended: %v", err)
	}
}

// A process that returns has its names, and a claim of one that is under way fails.
func TestRestore(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	claim, _, err := tab.Claim(t.Context(), key("x"), b, of(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tab.Restore(key("x"), a, of(1)); err != nil {
			t.Fatal(err)
		}
	}
	var taken *TakenError
	if err := tab.Settle(t.Context(), claim, nil); !errors.As(err, &taken) || taken.Owner.PID != 1 {
		t.Errorf("the claim: %v", err)
	}
	if err := tab.Restore(key("x"), b, of(1)); !errors.Is(err, code.NameTaken) {
		t.Errorf("a second process with the name: %v", err)
	}
	if es := tab.Find(key("x")); len(es) != 1 || es[0].Owner != a {
		t.Errorf("found: %v", es)
	}
	for i, o := range []*Owner{a, b} {
		if err := tab.Restore(key("set"), o, inSet(uint64(i)+1)); err != nil {
			t.Error(err)
		}
	}
	if n := len(tab.Find(key("set"))); n != 2 {
		t.Errorf("a set of %d", n)
	}
	tab.Drop(a)
	if err := tab.Restore(key("y"), a, of(1)); !errors.Is(err, code.NoDaemon) {
		t.Errorf("a process that has left: %v", err)
	}
}

// A claim ends with its process and with its export, and then is not settled.
func TestClaimEnds(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(*Table, *Owner)
		want code.Code
	}{
		"process left": {func(tab *Table, o *Owner) { tab.Drop(o) }, code.NoDaemon},
		"export ended": {func(tab *Table, o *Owner) { tab.EndExport(o, 1) }, code.BadRbufState},
		"withdrawn":    {func(tab *Table, o *Owner) { _ = tab.Withdraw(t.Context(), o, key("x"), 1) }, code.BadRbufState},
	} {
		var tab Table
		a := owner(1)
		e, _, err := tab.Claim(t.Context(), key("x"), a, of(1))
		if err != nil {
			t.Fatal(err)
		}
		c.end(&tab, a)
		if err := tab.Settle(t.Context(), e, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if len(tab.users) != 0 {
			t.Errorf("%s: %d users are left", what, len(tab.users))
		}
	}
}

// A request that was cancelled does nothing after the next one of its process.
func TestCancelled(t *testing.T) {
	var tab Table
	a := owner(1)
	ended, end := context.WithCancel(t.Context())
	end()
	e, _, err := tab.Claim(t.Context(), key("x"), a, of(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Settle(ended, e, nil); !errors.Is(err, context.Canceled) || len(tab.Find(key("x"))) > 0 {
		t.Errorf("a claim that was cancelled: %v", err)
	}
	hold(t, &tab, key("x"), a, of(1))
	if err := tab.Withdraw(ended, a, key("x"), 1); !errors.Is(err, context.Canceled) || len(tab.Find(key("x"))) == 0 {
		t.Errorf("a withdrawal that was cancelled: %v", err)
	}
}

// Among 10,000 names and 1,000 imports that wait, a claim wakes nothing, and a name only the
// imports that wait for it.
func TestWakes(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	for i := range 10_000 {
		hold(t, &tab, key(fmt.Sprint(i)), a, of(uint64(i)+1))
	}
	var waits []<-chan struct{}
	for i := range 1_000 {
		k := key(fmt.Sprint("none", i))
		if err := tab.Enter(b, k); err != nil {
			t.Fatal(err)
		}
		_, found, _ := tab.findWaited(k, new(*reservation))
		waits = append(waits, found)
	}
	woken := func() (n int) {
		for _, w := range waits {
			select {
			case <-w:
				n++
			default:
			}
		}
		return n
	}
	late := code.New(code.Timeout, "late")
	for i := range waits {
		e, _, err := tab.Claim(t.Context(), key(fmt.Sprint("none", i)), a, of(1<<40))
		if err == nil {
			err = tab.Settle(t.Context(), e, late)
		}
		if !errors.Is(err, late) {
			t.Fatal(err)
		}
	}
	if n := woken(); n != 0 {
		t.Errorf("claims that failed have woken %d imports", n)
	}
	hold(t, &tab, key("none7"), a, of(1<<40))
	if n := woken(); n != 1 {
		t.Errorf("a name has woken %d imports, want 1", n)
	}
	_, again, _ := tab.findWaited(key("none7"), new(*reservation))
	tab.EndExport(a, 1<<40)
	select {
	case <-again:
		t.Error("the end of a name has woken an import that waits for it")
	default:
	}
}

func TestWait(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	refused := code.New(code.NoRights, "no")
	held := hold(t, &tab, key("refused"), a, of(9))
	if _, err := tab.Wait(t.Context(), b, key("refused"), func(e *Entry) error {
		if e != held {
			t.Error("another entry")
		}
		return refused
	}); !errors.Is(err, refused) {
		t.Errorf("an importer that is not permitted: %v", err)
	}
	// One that waits is served by the next entry that is there, and no other name wakes it.
	got, tries := make(chan *Entry), make(chan *Entry, 9)
	go func() {
		e, err := tab.Wait(t.Context(), b, key("x"), func(e *Entry) error {
			tries <- e
			if e.Serial == 1 {
				return ErrAbsent
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		got <- e
	}()
	first := hold(t, &tab, key("x"), a, of(1))
	if e := <-tries; e != first {
		t.Error("another entry was tried")
	}
	_, changed, _ := tab.findWaited(key("x"), new(*reservation))
	hold(t, &tab, key("y"), a, of(3))
	select {
	case <-changed:
		t.Error("another name has woken the waiter")
	default:
	}
	tab.EndExport(a, 1)
	second := hold(t, &tab, key("x"), a, of(2))
	if e := <-got; e != second {
		t.Error("another entry")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := tab.Wait(ctx, b, key("z"), admitAll); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	tab.Drop(a)
	if b.waits != 0 || len(tab.users) != 0 {
		t.Errorf("%d waits and %d users are left", b.waits, len(tab.users))
	}
}

// Of a set each member has its turn, but for those that have ended.
func TestTurns(t *testing.T) {
	var tab Table
	a, b, c := owner(1), owner(2), owner(3)
	for _, o := range []*Owner{a, b, c} {
		hold(t, &tab, key("x"), o, inSet(1))
	}
	turns := func() (pids []uint32) {
		for range 6 {
			e, err := tab.Wait(t.Context(), a, key("x"), admitAll)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, e.Owner.ID.PID)
		}
		return pids
	}
	if diff := cmp.Diff([]uint32{1, 2, 3, 1, 2, 3}, turns()); diff != "" {
		t.Error(diff)
	}
	b.Alive = func() bool { return false }
	if diff := cmp.Diff([]uint32{1, 3, 3, 1, 3, 3}, turns()); diff != "" {
		t.Error(diff)
	}
}

func TestLimits(t *testing.T) {
	full := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, code.NoMem) {
			t.Errorf("%s: %v", what, err)
		}
	}
	claim := func(tab *Table, k Key, o *Owner, r nodeproto.PublishRequest) error {
		_, _, err := tab.Claim(t.Context(), k, o, r)
		return err
	}
	name := func(i int) Key { return key(fmt.Sprint(i)) }
	var tab Table
	a := owner(1)
	for i := range maxOfExport {
		hold(t, &tab, name(i), a, of(1))
	}
	full("an export", claim(&tab, key("x"), a, of(1)))
	for i := maxOfExport; i < maxOfProcess; i++ {
		hold(t, &tab, name(i), a, of(uint64(i)))
	}
	full("a process", claim(&tab, key("x"), a, of(1<<40)))
	full("a process that returns", tab.Restore(key("x"), a, of(1<<40)))
	for pid := uint32(2); pid <= maxOfUser/maxOfProcess; pid++ {
		o := owner(pid)
		for i := range maxOfProcess {
			hold(t, &tab, name(int(pid)*maxOfProcess+i), o, of(uint64(i)))
		}
	}
	b := owner(99)
	full("a user", claim(&tab, key("x"), b, of(1)))
	others := key("x")
	others.User = "other"
	hold(t, &tab, others, b, of(1))
	tab.EndExport(a, 1)
	hold(t, &tab, key("x"), b, of(2))

	tab = Table{}
	a = owner(1)
	for i := range maxClusterOfUser {
		k := name(i)
		k.Cluster = true
		hold(t, &tab, k, a, of(uint64(i)))
	}
	k := key("x")
	k.Cluster = true
	full("names of the cluster", claim(&tab, k, a, of(1<<40)))
	hold(t, &tab, key("x"), a, of(1<<40))

	tab = Table{}
	for pid := range uint32(maxSet) {
		hold(t, &tab, key("set"), owner(pid+1), inSet(1))
	}
	full("a set", claim(&tab, key("set"), b, inSet(3)))
	full("a set of one that returns", tab.Restore(key("set"), b, inSet(3)))

	tab = Table{}
	for pid := range maxWaitsOfUser / maxWaitsOfProcess {
		o := owner(uint32(pid) + 1)
		for range maxWaitsOfProcess {
			if err := tab.Enter(o, key("x")); err != nil {
				t.Fatal(err)
			}
		}
		full("waits of a process", tab.Enter(o, key("y")))
	}
	full("waits of a user", tab.Enter(b, key("y")))
	if err := tab.Enter(b, others); err != nil {
		t.Errorf("another user's wait: %v", err)
	}
}

func TestPage(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	const n = 100
	for i := range n {
		hold(t, &tab, key(fmt.Sprintf("%02d", i)), a, inSet(uint64(i)+1))
		hold(t, &tab, key(fmt.Sprintf("%02d", i)), b, inSet(uint64(i)+1))
	}
	if _, _, err := tab.Claim(t.Context(), key("00"), a, inSet(1<<20)); err != nil { // is not listed
		t.Fatal(err)
	}
	other := key("00")
	other.Session = "other"
	hold(t, &tab, other, a, of(1<<21))
	session := "s"
	odd := func(e *Entry) bool { return e.Key.Name[1]%2 == 1 }
	var at Position
	var got []string
	for {
		page := tab.Page(Filter{Session: &session}, at, 7, odd)
		for _, e := range page {
			got = append(got, fmt.Sprint(e.Key.Name, e.Owner.ID.PID))
			at = e.Position()
		}
		if len(page) < 7 {
			break
		}
	}
	var want []string
	for i := 1; i < n; i += 2 {
		want = append(want, fmt.Sprintf("%02d1", i), fmt.Sprintf("%02d2", i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	nobody := "nobody"
	if page := tab.Page(Filter{User: &nobody}, Position{}, 7, odd); len(page) > 0 {
		t.Errorf("another user's: %v", page)
	}
	if n := len(tab.Page(Filter{}, Position{}, 3*n, func(*Entry) bool { return true })); n != 201 {
		t.Errorf("%d of all, want 201", n)
	}
}

// A page looks at few names besides its own, however many there are.
func TestPageLooksAtFew(t *testing.T) {
	var tab Table
	a := owner(1)
	const n, size = 3*maxListed + 10, 50
	for i := range n {
		hold(t, &tab, key(fmt.Sprintf("%04d", i)), a, of(uint64(i)+1))
	}
	var at Position
	seen := 0
	for page := []*Entry{nil}; len(page) > 0; {
		looked := 0
		page = tab.Page(Filter{}, at, size, func(*Entry) bool { looked++; return true })
		if looked > maxListed {
			t.Fatalf("a page of %d names looks at %d", len(page), looked)
		}
		for _, e := range page {
			if want := fmt.Sprintf("%04d", seen); e.Key.Name != want {
				t.Fatalf("%q is listed, want %q", e.Key.Name, want)
			}
			seen++
			at = e.Position()
		}
	}
	if seen != n {
		t.Errorf("%d names are listed, want %d", seen, n)
	}
	last := tab.Page(Filter{}, Position{}, 1, func(e *Entry) bool { return e.Key.Name == fmt.Sprintf("%04d", n-1) })
	if len(last) != 1 {
		t.Error("a name behind many that do not match is not listed")
	}
}

// modelEntry is an entry in a model of the table that keeps one list.
type modelEntry struct {
	k      Key
	o      *Owner
	serial uint64
	set    bool
	state  entryState
}

// modelReservation is a reservation in the model.
type modelReservation struct {
	pid   uint32
	ended bool
}

// model compares the table with lists, step by step.
func model(t *rapid.T) {
	var tab Table
	owners := []*Owner{owner(1), owner(2), owner(3)}
	keys := []Key{key("x"), key("y"), {Scope: Scope{"u", ""}, Name: "x"}, {Scope: Scope{"v", "s"}, Name: "x", Cluster: true}}
	var all []*modelEntry
	claims := map[*Entry]*modelEntry{}
	gone := map[*Owner]bool{}
	reserved := map[Key]*modelReservation{}
	refuses := func(k Key, pid uint32) bool { return reserved[k] != nil && reserved[k].pid != pid }
	endReserved := func(pid uint32) {
		for _, r := range reserved {
			r.ended = r.ended || r.pid == pid
		}
	}
	anOwner, aKey := rapid.SampledFrom(owners), rapid.SampledFrom(keys)
	aSerial := rapid.Uint64Range(1, 3)
	drop := func(which func(*modelEntry) bool) {
		for _, m := range all {
			if which(m) {
				m.state = entryEnded
			}
		}
		all = slices.DeleteFunc(all, which)
	}
	under := func(k Key) (ms []*modelEntry) {
		for _, m := range all {
			if m.k == k {
				ms = append(ms, m)
			}
		}
		return ms
	}
	t.Repeat(map[string]func(*rapid.T){
		"claim": func(t *rapid.T) {
			k, o, r := aKey.Draw(t, "key"), anOwner.Draw(t, "owner"), of(aSerial.Draw(t, "serial"))
			r.Set = rapid.Bool().Draw(t, "set")
			e, holder, changed, err := tab.tryClaim(k, o, r)
			there := under(k)
			own := slices.IndexFunc(there, func(m *modelEntry) bool {
				return m.o == o && m.serial == r.Serial
			})
			switch {
			case gone[o]:
				if !errors.Is(err, code.NoDaemon) {
					t.Fatalf("a process that has left: %v", err)
				}
			case refuses(k, o.ID.PID):
				if !errors.Is(err, code.NameTaken) {
					t.Fatalf("a name that is kept for another process: %v", err)
				}
			case own >= 0 && there[own].set == r.Set:
				if held := there[own].state == entryHeld; held != (e != nil && holder == o) || held == (changed != nil) {
					t.Fatalf("a second claim: %v, %v", e, holder)
				}
			case len(there) > 0 && (!there[0].set || !r.Set):
				if e != nil || changed == nil || (holder != nil) != (there[0].state == entryHeld) {
					t.Fatalf("a claim of a name that is there: %v, %v", e, holder)
				}
			case e == nil || holder != nil || err != nil:
				t.Fatalf("a claim of a free name: %v, %v", holder, err)
			default:
				m := &modelEntry{k, o, r.Serial, r.Set, entryClaiming}
				all = append(all, m)
				claims[e] = m
			}
		},
		"settle": func(t *rapid.T) {
			if len(claims) == 0 {
				return // not skipped: a fuzzer may draw this action alone, and rapid fails then
			}
			var es []*Entry
			for e := range claims {
				es = append(es, e)
			}
			slices.SortFunc(es, func(a, b *Entry) int { return a.Position().Compare(b.Position()) })
			e := es[rapid.IntRange(0, len(es)-1).Draw(t, "claim")]
			var give error
			if rapid.Bool().Draw(t, "fails") {
				give = code.New(code.Timeout, "late")
			}
			m := claims[e]
			delete(claims, e)
			err := tab.Settle(context.Background(), e, give)
			if (err == nil) != (m.state == entryClaiming && give == nil) {
				t.Fatalf("settled: %v", err)
			}
			switch {
			case m.state != entryClaiming:
			case give == nil:
				m.state = entryHeld
			default:
				drop(func(o *modelEntry) bool { return o == m })
			}
		},
		"restore": func(t *rapid.T) {
			k, o, r := aKey.Draw(t, "key"), anOwner.Draw(t, "owner"), of(aSerial.Draw(t, "serial"))
			r.Set = rapid.Bool().Draw(t, "set")
			err := tab.Restore(k, o, r)
			there := under(k)
			mine := slices.ContainsFunc(there, func(m *modelEntry) bool { return m.o == o && m.serial == r.Serial })
			taken := slices.ContainsFunc(there, func(m *modelEntry) bool {
				return m.state == entryHeld && (!m.set || !r.Set)
			})
			if (err == nil) != (!gone[o] && (mine || !taken && !refuses(k, o.ID.PID))) {
				t.Fatalf("restored: %v", err)
			}
			if err == nil && !mine {
				drop(func(m *modelEntry) bool { return m.k == k && (!m.set || !r.Set) })
				all = append(all, &modelEntry{k, o, r.Serial, r.Set, entryHeld})
			}
		},
		"withdraw": func(t *rapid.T) {
			k, o, serial := aKey.Draw(t, "key"), anOwner.Draw(t, "owner"), aSerial.Draw(t, "serial")
			_ = tab.Withdraw(context.Background(), o, k, serial)
			drop(func(m *modelEntry) bool { return m.k == k && m.o == o && m.serial == serial })
		},
		"end export": func(t *rapid.T) {
			o, serial := anOwner.Draw(t, "owner"), aSerial.Draw(t, "serial")
			tab.EndExport(o, serial)
			drop(func(m *modelEntry) bool { return m.o == o && m.serial == serial })
		},
		"drop": func(t *rapid.T) {
			i := rapid.IntRange(0, len(owners)-1).Draw(t, "owner")
			o := owners[i]
			tab.Drop(o)
			gone[o] = true
			drop(func(m *modelEntry) bool { return m.o == o })
			if rapid.Bool().Draw(t, "another process comes") {
				owners[i] = owner(o.ID.PID)
			}
		},
		"reserve": func(t *rapid.T) {
			k, pid := aKey.Draw(t, "key"), rapid.Uint32Range(1, 3).Draw(t, "pid")
			others := slices.ContainsFunc(under(k), func(m *modelEntry) bool { return m.o.ID.PID != pid })
			err := tab.Reserve(k, nodeproto.ProcessID{Node: "n", PID: pid})
			if (err == nil) == (refuses(k, pid) || others) {
				t.Fatalf("reserved for process %d: %v", pid, err)
			}
			if err == nil {
				endReserved(pid)
				reserved[k] = &modelReservation{pid: pid}
			}
		},
		"end reserved": func(t *rapid.T) {
			pid := rapid.Uint32Range(1, 3).Draw(t, "pid")
			tab.EndReserved(pid)
			endReserved(pid)
		},
		"drop reservations": func(t *rapid.T) {
			s := aKey.Draw(t, "key").Scope
			tab.DropReservations(s)
			maps.DeleteFunc(reserved, func(k Key, _ *modelReservation) bool { return k.Scope == s })
		},
		"": func(t *rapid.T) {
			check(t, &tab, keys, under, owners, len(all))
			checkReserved(t, &tab, keys, reserved)
		},
	})
}

func check(
	t *rapid.T, tab *Table, keys []Key, under func(Key) []*modelEntry, owners []*Owner, entries int,
) {
	for _, k := range keys {
		var want []*modelEntry
		for _, m := range under(k) {
			if m.state == entryHeld {
				want = append(want, m)
			}
		}
		got := tab.find(k).held()
		if !slices.EqualFunc(got, want, func(e *Entry, m *modelEntry) bool {
			return e.Owner == m.o && e.Serial == m.serial && e.Set == m.set && e.Key == k
		}) {
			t.Fatalf("%v: found %v, want %v", k, got, want)
		}
	}
	n := 0
	for user, u := range tab.users {
		of, cluster := 0, 0
		for _, s := range u.scopes {
			if len(s.sorted) != len(s.names) || !slices.IsSortedFunc(s.sorted, func(a, b *name) int { return a.at.compare(b.at) }) {
				t.Fatalf("%d names of user %q, sorted %d", len(s.names), user, len(s.sorted))
			}
			for at, name := range s.names {
				if of += len(name.entries); at.cluster {
					cluster += len(name.entries)
				}
				if len(name.entries) == 0 && name.reserved == nil {
					t.Fatalf("name %q of user %q is left", at.name, user)
				}
			}
		}
		if u.entries != of || u.cluster != cluster || len(u.scopes) == 0 {
			t.Fatalf("user %q has %d names, %d of the cluster, counted %d, %d", user, of, cluster, u.entries, u.cluster)
		}
		n += of
	}
	if n != entries {
		t.Fatalf("%d entries, want %d", n, entries)
	}
	for _, o := range owners {
		of := 0
		for _, es := range o.held {
			of += len(es)
		}
		if of != o.count || o.gone && of > 0 {
			t.Fatalf("process %d has %d names, counted %d", o.ID.PID, of, o.count)
		}
	}
}

func checkReserved(t *rapid.T, tab *Table, keys []Key, reserved map[Key]*modelReservation) {
	kept := map[uint32]bool{}
	for _, k := range keys {
		r := reserved[k]
		if ended := tab.ReservationEnded(k) != nil; ended != (r != nil && r.ended) {
			t.Fatalf("%v: reserved %+v, ended: %v", k, r, ended)
		}
		if r != nil && !r.ended {
			kept[r.pid] = true
		}
	}
	for pid := range uint32(4) {
		if tab.IsReserved(pid) != kept[pid] {
			t.Fatalf("process %d has a reservation: %v", pid, !kept[pid])
		}
	}
	ended := 0
	for _, u := range tab.users {
		ended += len(u.ended)
	}
	if len(tab.reserved) != len(kept) || ended != len(reserved)-len(kept) {
		t.Fatalf("%d reservations are kept and %d ended, of %d", len(tab.reserved), ended, len(reserved))
	}
}

func TestModel(t *testing.T) { rapid.Check(t, model) }

func FuzzTable(f *testing.F) {
	for b := range byte(16) { // each draws one action alone, and then ends
		f.Add(append(bytes.Repeat([]byte{b}, 4096), make([]byte, 8192)...))
	}
	f.Fuzz(rapid.MakeFuzz(model))
}

// Many goroutines claim, wait, withdraw and leave: a name never has two owners, and each wait ends.
func TestManyAtOnce(t *testing.T) {
	var tab Table
	var all sync.WaitGroup
	var owned [4]sync.Mutex // by name: locked while a process has it
	for pid := range uint32(8) {
		all.Go(func() {
			for i := range 300 {
				n := (int(pid) + i) % len(owned)
				o, k := owner(pid+1), key(fmt.Sprint(n))
				e, _, err := tab.Claim(t.Context(), k, o, of(1))
				if errors.Is(err, code.NameTaken) {
					continue
				}
				if err == nil {
					err = tab.Settle(t.Context(), e, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !owned[n].TryLock() {
					t.Errorf("name %d has two owners", n)
					return
				}
				runtime.Gosched()
				owned[n].Unlock() // no other process has it before the next call
				switch i % 3 {
				case 0:
					_ = tab.Withdraw(t.Context(), o, k, 1)
				case 1:
					tab.EndExport(o, 1)
				}
				tab.Drop(o)
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var waits sync.WaitGroup
	for pid := range uint32(8) {
		waits.Go(func() {
			o := owner(pid + 100)
			for i := 0; ; i++ {
				_, err := tab.Wait(ctx, o, key(fmt.Sprint(i%len(owned))), admitAll)
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	stop()
	waits.Wait()
	if len(tab.users) != 0 {
		t.Errorf("%d users are left", len(tab.users))
	}
}

// What a claim, a look-up and an end of a name cost does not depend on how many names and waiters there
// are: they wake no waiter for another name, and use as much memory beside 10,000 names and 1,000 waiters
// as beside 10 and 1.
func TestFlat(t *testing.T) {
	used := map[int]uint64{}
	for _, n := range []int{10, 10_000} {
		var tab Table
		a := owner(1)
		a.MostWaits = n
		for i := range n {
			hold(t, &tab, key(fmt.Sprint(i)), a, of(uint64(i)+1))
		}
		// The waiters look at names that are there, and that they may not have: so each look is counted.
		ctx, stop := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		var looks atomic.Int64
		const each = 2 // before it is a waiter, and as one
		for i := range n / 10 {
			waits.Go(func() {
				_, err := tab.Wait(ctx, a, key(fmt.Sprint(i)), func(*Entry) error { looks.Add(1); return ErrAbsent })
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		for looks.Load() < int64(each*n/10) {
			runtime.Gosched()
		}
		round := func() {
			e := hold(t, &tab, key("x"), a, of(1<<40))
			if es := tab.Find(key("x")); len(es) != 1 || es[0] != e {
				t.Fatal("not found")
			}
			if err := tab.Withdraw(t.Context(), a, key("x"), 1<<40); err != nil {
				t.Fatal(err)
			}
			hold(t, &tab, key("x"), a, of(1<<40))
			tab.EndExport(a, 1<<40)
		}
		round()
		var before, after runtime.MemStats
		const rounds = 100
		runtime.ReadMemStats(&before)
		for range rounds {
			round()
		}
		runtime.ReadMemStats(&after)
		used[n] = (after.TotalAlloc - before.TotalAlloc) / rounds
		if got := looks.Load(); got != int64(each*n/10) {
			t.Errorf("%d waiters for other names looked %d times while names came and went", n/10, got-int64(each*n/10))
		}
		stop()
		waits.Wait()
	}
	if used[10_000] > 2*used[10]+1024 {
		t.Errorf("a round uses %d bytes beside 10,000 names, and %d beside 10", used[10_000], used[10])
	}
}

// What a claim and a look-up cost does not depend on how many names and waiters there are.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tab Table
			a := owner(1)
			for i := range n {
				e, _, err := tab.Claim(b.Context(), key(fmt.Sprint(i)), a, of(uint64(i)+1))
				if err == nil {
					err = tab.Settle(b.Context(), e, nil)
				}
				if err == nil && i%10 == 0 {
					k := key(fmt.Sprint("none", i))
					if err = tab.Enter(a, k); err == nil {
						_, _, _ = tab.findWaited(k, new(*reservation))
					}
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				e, _, _ := tab.Claim(b.Context(), key("x"), a, of(1<<40))
				_ = tab.Settle(b.Context(), e, nil)
				if es := tab.Find(key("x")); len(es) != 1 {
					b.Fatal("not found")
				}
				_ = tab.Withdraw(b.Context(), a, key("x"), 1<<40)
			}
		})
	}
}

// The end of a name of the cluster is ordered before a later claim of the same export, and after
// all that the directory was told of it, whenever the directory is told.
func TestOrderOfCluster(t *testing.T) {
	tab, ctx := new(Table), t.Context()
	o := &Owner{ID: nodeproto.ProcessID{Node: "n", PID: 1}, Alive: func() bool { return true }}
	k := Key{Scope: Scope{User: "u"}, Name: "q", Cluster: true}
	claim := func() (*Entry, uint64) {
		t.Helper()
		e, _, err := tab.Claim(ctx, k, o, nodeproto.PublishRequest{Name: "q", Cluster: true, ID: 1, Serial: 1})
		if err != nil {
			t.Fatal(err)
		}
		order, err := tab.Order(e)
		if err != nil {
			t.Fatal(err)
		}
		return e, order
	}
	first, begun := claim()
	if err := tab.Withdraw(ctx, o, k, 1); err != nil { // while it is claimed
		t.Fatal(err)
	}
	if _, err := tab.Order(first); err == nil {
		t.Error("a claim that has ended goes on")
	}
	second, again := claim()
	es, listed := tab.OfCluster()
	if len(es) != 1 || es[0] != second || listed <= again {
		t.Errorf("%d names, listed at %d after a claim at %d", len(es), listed, again)
	}
	for range 2 { // and once more when the first claim is settled
		ended := tab.TakeEnded()
		if len(ended) != 1 || ended[0].Entry != first || ended[0].Order <= begun || ended[0].Order >= again {
			t.Errorf("ended: %+v, between %d and %d", ended, begun, again)
		}
		if err := tab.Settle(ctx, first, nil); err == nil {
			t.Error("a claim that has ended is settled")
		}
	}
}

// An export that gives its name up while that is contested, and claims it again, keeps what it has
// claimed: the contest was about the entry before.
func TestLoseIsOfOneEntry(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	k := key("x")
	k.Cluster = true
	contested := func(e *Entry) uint64 {
		t.Helper()
		order, err := tab.Order(e)
		if err != nil {
			t.Fatal(err)
		}
		return order
	}
	before := contested(hold(t, &tab, k, a, of(1)))
	if err := tab.Withdraw(t.Context(), a, k, 1); err != nil {
		t.Fatal(err)
	}
	again := hold(t, &tab, k, a, of(1))
	if e := tab.Lose(k, a.ID, 1, before, b.ID); e != nil || len(tab.Find(k)) != 1 {
		t.Errorf("a contest of the entry before ends %v, and leaves %d", e, len(tab.Find(k)))
	}
	if e := tab.Lose(k, a.ID, 1, contested(again), b.ID); e != again || len(tab.Find(k)) != 0 {
		t.Errorf("a contest of the entry ends %v, and leaves %d", e, len(tab.Find(k)))
	}
}
