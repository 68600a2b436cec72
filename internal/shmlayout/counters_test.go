package shmlayout

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
)

func counting(t *testing.T) (*Counters, *Reader) {
	t.Helper()
	c, err := NewCounters()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Retire)
	fd, err := c.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenCounters(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return c, r
}

func read(t *testing.T, r *Reader) ([]Link, Ended) {
	t.Helper()
	l, ended, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	return l, ended
}

func TestCountersAreReadElsewhere(t *testing.T) {
	c, r := counting(t)
	a, b, silent := c.Take(true), c.Take(false), c.Take(true)
	a.Describe(true, false, LinkPeer{"n1", 7, 99})
	b.Describe(false, false, LinkPeer{"n2", 8, 98})
	silent.Add(Messages, 1)
	for range 1000 {
		a.Add2(Messages, 1, Bytes, 64)
	}
	b.Add(Notifications, 3)
	a.SetState(ConnReconnecting)
	links, ended := read(t, r)
	if len(links) != 2 || ended != (Ended{}) {
		t.Fatalf("%d links, ended %v: want the two that were described", len(links), ended)
	}
	want := Link{Slot: links[0].Slot, Serial: links[0].Serial, Importing: true, Mapped: true, State: ConnReconnecting, Begun: links[0].Begun, Peer: LinkPeer{"n1", 7, 99}, Counts: Counts{Messages: 1000, Bytes: 64000}}
	if d := cmp.Diff(want, links[0]); d != "" {
		t.Error(d)
	}
	if links[1].Counts[Notifications] != 3 || links[1].Importing || links[1].Mapped {
		t.Errorf("the second link is %+v", links[1])
	}

	// A link that ends is counted with those that have; its slot's next one begins at 0.
	a.Free()
	a.SetState(ConnReleased) // it has no slot any more
	links, ended = read(t, r)
	if len(links) != 1 || ended.Imports[Bytes] != 64000 || ended.Exports != (Counts{}) {
		t.Fatalf("%d links, %d bytes of links that have ended", len(links), ended.Imports[Bytes])
	}
	d := c.Take(true)
	d.Describe(false, false, LinkPeer{"n3", 1, 1})
	links, _ = read(t, r)
	if links[0].Slot != want.Slot || links[0].Serial == want.Serial || links[0].Counts != (Counts{}) || links[0].State != ConnUnknown {
		t.Errorf("the slot's next link is %+v", links[0])
	}
}

func TestUnlockedCountsAreNearlyExact(t *testing.T) {
	c, r := counting(t)
	s := c.Take(true)
	s.Describe(true, false, LinkPeer{"n", 1, 1})
	const each = 20000
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range each {
				s.Add(Messages, 1)
			}
		})
	}
	all.Wait()
	links, _ := read(t, r)
	if n := links[0].Counts[Messages]; n < each || n > 4*each {
		t.Errorf("%d counted of %d: a goroutine's own are lost by another's only", n, 4*each)
	}
}

// Under a lock nothing is lost, beside others that count without it.
func TestLockedCountsAreExact(t *testing.T) {
	c, r := counting(t)
	s := c.Take(false)
	s.Describe(true, false, LinkPeer{"n", 1, 1})
	const each = 20000
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range each {
				mu.Lock()
				s.AddLocked(Acks, 1)
				mu.Unlock()
				s.Add2(Messages, 1, Bytes, 8)
			}
		})
	}
	all.Wait()
	links, _ := read(t, r)
	if n := links[0].Counts[Acks]; n != 4*each {
		t.Errorf("%d counted of %d", n, 4*each)
	}
	s.Free()
	if _, ended := read(t, r); ended.Exports[Acks] != 4*each || ended.Imports != (Counts{}) {
		t.Errorf("%d are of links that have ended", ended.Exports[Acks])
	}
}

func TestMoreLinksThanSlots(t *testing.T) {
	c, r := counting(t)
	var all []Slot
	for range MaxLinks + 10 {
		s := c.Take(true)
		s.Describe(true, false, LinkPeer{"n", 1, 1})
		s.Add(Messages, 1)
		all = append(all, s)
	}
	links, ended := read(t, r)
	if len(links) != MaxLinks-sumSlots || ended.Imports[Messages] != 10+sumSlots {
		t.Errorf("%d links, %d messages of others", len(links), ended.Imports[Messages])
	}
	for i := range all {
		all[i].Free()
		all[i].Free() // does nothing
	}
	links, ended = read(t, r)
	if len(links) != 0 || ended.Imports[Messages] != MaxLinks+10 {
		t.Errorf("%d links, %d messages when all have ended", len(links), ended.Imports[Messages])
	}
}

func TestCountersOfALiar(t *testing.T) {
	c, r := counting(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	b := c.r.Bytes()[topAt:]
	for range 20 {
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		links, _ := read(t, r)
		for _, l := range links {
			if len(l.Peer.Node) > maxPeer || l.Slot >= MaxLinks {
				t.Fatalf("taken from a liar: %+v", l)
			}
		}
	}
	c.r.Bytes()[0]++
	if _, _, err := r.Read(); err == nil {
		t.Error("another kind of page was read")
	}
}

func TestCountersMustBeTheMemoryTheyAre(t *testing.T) {
	a, b, err := unix.StreamPair()
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Close(b) }()
	if _, err := OpenCounters(a); err == nil {
		t.Error("a socket was taken, which could be read for ever")
	}
	small, err := shm.NewSparse("small", 4096, true)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Retire()
	fd, err := small.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCounters(fd); err == nil {
		t.Error("memory of another size was taken")
	}
	loose, err := unix.Memfd("loose", int64(shm.RoundUp(countersSize)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCounters(loose); err == nil {
		t.Error("memory that may shrink was taken")
	}
}

// Most processes have one link or two, which take no memory to count.
func TestFirstCountersTakeNoPage(t *testing.T) {
	if shm.PageSize != 4096 {
		t.Skipf("a page of this system has %d bytes, and room for more", shm.PageSize)
	}
	c, _ := counting(t)
	present := func() int64 {
		fd, err := c.Descriptor()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		info, err := unix.Inspect(fd)
		if err != nil {
			t.Fatal(err)
		}
		return info.Present
	}
	empty := present()
	for n := range 3 {
		s := c.Take(n%2 == 0)
		s.Describe(true, false, LinkPeer{"n", 1, 1})
		for i := range c.at(s.index) { // whichever lanes it counts in
			c.at(s.index)[i] |= 1
		}
		if got := present(); (got > empty) != (n == 2) {
			t.Errorf("%d links: the counters take %d bytes, %d without any", n+1, got, empty)
		}
	}
}
