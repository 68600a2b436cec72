package vrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/xdr"
)

// nasty is two processes, of which one is not what it says.
type nasty struct {
	good, bad *vmmc.Process
	rand      *rand.Rand
}

func newNasty(t *testing.T) *nasty {
	t.Helper()
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	open := func() *vmmc.Process {
		p, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &nasty{open(), open(), rand.New(rand.NewPCG(seed, 1))}
}

// words are some that a peer may take for numbers, places and lengths.
func (n *nasty) words(count int) []byte {
	b := make([]byte, 0, 4*count)
	for range count {
		v := n.rand.Uint32()
		switch n.rand.IntN(4) {
		case 0:
			v %= 40
		case 1:
			v = -(v % 300)
		case 2:
			v %= 1 << 21
		}
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// scribble writes some of them anywhere.
func (n *nasty) scribble(ctx context.Context, to *vmmc.Import) error {
	b := n.words(1 + n.rand.IntN(100))
	b = b[:min(len(b), to.Size())]
	return to.Send(ctx, b, n.rand.IntN((to.Size()-len(b))/4+1)*4)
}

// callNull calls the null procedure, in a few seconds.
func callNull(t *testing.T, c *Client) error {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	return c.Call(ctx, 77, 1, 0, xdr.Void{}, xdr.Void{})
}

// serveGood serves one program.
func (n *nasty) serveGood(t *testing.T) {
	t.Helper()
	s := NewServer(WithServerTimes(0, 100*time.Millisecond, 0))
	if err := s.Register(&Service{Program: 77, Version: 1}); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.ServeVMMC(n.good, Meeting) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
}

// Whatever is written where clients meet a server, it goes on.
func TestNastyLetters(t *testing.T) {
	n := newNasty(t)
	n.serveGood(t)
	meet, err := n.bad.Import(t.Context(), n.good.Node(), n.good.PID(), Meeting)
	if err != nil {
		t.Fatal(err)
	}
	victim, err := n.good.Alloc(clientLayout(1, unit).size())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.good.Export(5, victim.Bytes()); err != nil {
		t.Fatal(err)
	}
	name, err := n.bad.NodeToName(n.bad.Node())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		l := connectMessage{n.rand.Uint32(), n.rand.Uint32() % 10, n.rand.Uint32() % 3, n.rand.Uint32() % 2 * unit, uint32(n.bad.PID()), name}
		if i%2 == 0 { // of memory that is no client's
			l.buffer, l.pid, l.slots, l.area = 5, uint32(n.good.PID()), 1, unit
		}
		b := l.bytes()
		if i%3 == 0 {
			copy(b[n.rand.IntN(len(b)/4)*4:], n.words(3))
		}
		if err := meet.SendNotify(t.Context(), b, n.rand.IntN(meetingPlaces)*meetingSize+4); err != nil {
			t.Fatal(err)
		}
		short := n.words(1)
		if err := meet.SendNotify(t.Context(), short, n.rand.IntN(meet.Size()/4)*4); err != nil {
			t.Fatal(err)
		}
	}
	clear := make([]byte, meet.Size())
	if err := meet.Send(t.Context(), clear, 0); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	c, err := DialVMMC(ctx, n.bad, n.good.ID(), Meeting)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := callNull(t, c); err != nil {
		t.Error(err)
	}
	for i, b := range victim.Bytes() {
		if b != 0 {
			t.Fatalf("byte %d of memory that no client has offered was written", i)
		}
	}
}

// A client that writes anything at all into the memory of its connection ends that at most.
func TestNastyClients(t *testing.T) {
	n := newNasty(t)
	n.serveGood(t)
	good, err := DialVMMC(t.Context(), n.good, n.good.ID(), Meeting)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	for i := range 60 {
		var opts []ClientOption
		if i%2 == 1 {
			opts = append(opts, WithExport(vmmc.Unmapped()))
		}
		bad, err := DialVMMC(t.Context(), n.bad, n.good.ID(), Meeting, append(opts, WithArea(4, 3*unit))...)
		if err != nil {
			t.Fatal(err)
		}
		w := bad.transport.(*vmmcTransport)
		for k := range 20 {
			if n.scribble(t.Context(), w.q) != nil {
				break // the server has ended it
			}
			// An entry with the right number, and all else not.
			e := n.words(entrySize / 4)
			binary.LittleEndian.PutUint32(e[entrySize-4:], uint32(k+1))
			if n.rand.IntN(2) == 0 { // and a call in it
				(&entry{uint32(n.rand.IntN(260)), here, uint32(n.rand.IntN(6)), uint32(k + 1)}).append(e[:inline])
			}
			if w.q.Send(t.Context(), e, w.out.at(k%w.out.entries)) != nil {
				break
			}
		}
		_ = bad.Close()
		if err := callNull(t, good); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that writes anything at all into a client's memory has its calls fail, or answered
// wrongly, and none wait for ever.
func TestNastyServers(t *testing.T) {
	n := newNasty(t)
	mem, err := n.bad.Alloc(meetingPlaces * meetingSize)
	if err != nil {
		t.Fatal(err)
	}
	letters := make(chan connectMessage, 100)
	if _, err := n.bad.Export(Meeting, mem.Bytes(), vmmc.WithHandler(func(m vmmc.Notification) {
		at := m.Offset / meetingSize * meetingSize
		if l, ok := parseConnectMessage(mem.Bytes()[at+4 : at+meetingSize]); ok {
			clear(mem.Bytes()[at : at+meetingSize])
			letters <- l
		}
	})); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		dialled := make(chan *Client, 1)
		go func() {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			c, err := DialVMMC(ctx, n.good, n.bad.ID(), Meeting, WithArea(4, 3*unit))
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("a client still waits to connect: %v", err)
			}
			dialled <- c
		}()
		l := <-letters
		r, err := n.bad.Import(t.Context(), n.good.Node(), n.good.PID(), l.buffer)
		if err != nil {
			t.Fatal(err)
		}
		in, err := newInbox(n.bad, serverLayout(4, 2*unit), n.good.ID(), n.rand.Uint32, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 { // a welcome to what is not so
			lie := *in
			lie.layout = layout{0, int(n.rand.Uint32() % 9), int(n.rand.Uint32())}
			err = hello(t.Context(), r, n.rand.Uint32()%5+1, &lie, in.exp.ID())
		} else {
			err = hello(t.Context(), r, helloWelcome, in, in.exp.ID())
		}
		if err != nil {
			t.Fatal(err)
		}
		if c := <-dialled; c != nil {
			n.answer(t, c, r, in)
		}
		_ = r.Close()
		in.close()
	}
}

// answer answers calls with anything.
func (n *nasty) answer(t *testing.T, c *Client, r *vmmc.Import, in *inbox) {
	out := clientLayout(4, 3*unit)
	const calls = 4
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() { _ = callNull(t, c) })
	}
	done, end := context.WithCancel(t.Context())
	go func() {
		wg.Wait()
		end()
	}()
	for k := range calls {
		if v, err := r.WaitWord(done, in.words[k], 0); err != nil || v == 0 {
			break // the client has found out
		}
		var e entry
		e.read(in.place(k), uint32(k+1))
		_ = n.scribble(t.Context(), r)
		answer := n.words(entrySize / 4)
		if n.rand.IntN(3) > 0 { // what it waits for, wherever it may be
			(&entry{uint32(n.rand.IntN(300)), n.rand.Uint32() % (4 * unit), e.slot, e.number}).append(answer[:inline])
		}
		_ = r.Send(t.Context(), answer, out.at(int(e.slot%4)))
	}
	select {
	case <-done.Done():
	case <-time.After(time.Second / 20):
		_ = r.Close() // nothing came that could be an answer: it ends
		in.close()
		<-done.Done()
	}
	_ = c.Close()
}
