package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/link/sendbuf"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// faults are those of one connection, and of the attempt to make it.
type faults struct {
	there, back []simnet.Fault
	frames      *[2][]frameFault // nil: the network knows of bytes only
	refused     bool             // the attempt fails
	unanswered  bool             // the exporter has taken it, and the importer does not hear of that
}

// bridge joins two engines by a link that survives its connections.
type bridge struct {
	*pair
	mu    sync.Mutex
	next  []faults // of the connections to come
	conns []*simnet.Conn
	nets  []*frameNet

	secrets *secrets // nil: in clear
}

type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// ends are those of a connection, and what goes before them if it is encrypted.
type ends struct {
	near, far             int
	nearCipher, farCipher Cipher
}

// first is the connection that the link began with.
func (b *bridge) first() *simnet.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns[0]
}

func (b *bridge) dial(f faults) (e ends, err error) {
	x, y, c, err := simnet.Pair(f.there, f.back)
	if err != nil {
		return e, err
	}
	b.mu.Lock()
	b.conns = append(b.conns, c)
	b.mu.Unlock()
	if f.frames != nil {
		if y, err = b.framewise(y, f.frames); err != nil {
			return e, err
		}
	}
	if b.secrets != nil {
		near, far, err := b.secrets.shake(x, y)
		if err != nil {
			return e, err
		}
		e.nearCipher, e.farCipher = near, far
	}
	if e.near, err = unix.TakeOver(x); err != nil {
		return e, err
	}
	e.far, err = unix.TakeOver(y)
	return e, err
}

func (b *bridge) take() (f faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next) > 0 {
		f, b.next = b.next[0], b.next[1:]
	}
	return f
}

func (b *bridge) redial(_ context.Context, _, replied uint64, notices uint32) (int, Cipher, wire.Answer, error) {
	f := b.take()
	if f.refused {
		return -1, nil, wire.Answer{}, errors.New("no exporter is there")
	}
	e, err := b.dial(f)
	if err != nil {
		return -1, nil, wire.Answer{}, err
	}
	var a wire.Answer
	err = b.in.Resume(e.far, e.farCipher, replied, notices, func(_ error, applied, partial uint64, credits uint32) error {
		a = wire.Answer{Applied: applied, Partial: partial, Credits: uint64(credits)}
		return nil
	})
	if err == nil && f.unanswered {
		err = errors.New("no answer")
	}
	if err != nil {
		_ = unix.Close(e.near)
		return -1, nil, a, err
	}
	return e.near, e.nearCipher, a, nil
}

// bridged makes one; all its connections' faults are said here.
func bridged(t *testing.T, r failer, terms Terms, targets []*Target, all ...faults) *bridge {
	t.Helper()
	return bridgedBy(t, r, nil, terms, targets, all...)
}

// bridgedBy is that with links which are encrypted if there are secrets.
func bridgedBy(t *testing.T, r failer, by *secrets, terms Terms, targets []*Target, all ...faults) *bridge {
	t.Helper()
	a, pa := engine(t)
	e, pe := engine(t)
	_, _ = pa, pe
	b := &bridge{pair: &pair{a: a, b: e, lost: make(chan error, 2)}, next: all, secrets: by}
	first, err := b.dial(b.take())
	for by != nil && err != nil { // in the handshake
		first, err = b.dial(b.take())
	}
	if err != nil {
		r.Fatal(err)
	}
	if terms.ReconnectLimit == 0 {
		terms.ReconnectLimit = 20 * time.Second
	}
	terms.Cipher = first.farCipher
	if b.in, err = NewResponder(e, first.far, nil, terms, targets, nil, func(uint32) {}, func(err error) { b.lost <- err }); err != nil {
		r.Fatal(err)
	}
	if terms.Redial == nil {
		terms.Redial = b.redial
	}
	terms.Cipher = first.nearCipher
	if b.out, err = NewRequester(a, first.near, nil, terms, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		r.Fatal(err)
	}
	return b
}

func (b *bridge) close() {
	b.out.Close()
	b.in.Close()
	b.a.Close()
	b.b.Close()
	for _, c := range b.conns {
		c.Close()
	}
	for _, n := range b.nets {
		n.close()
	}
}

// Whatever happens to its connections: all that a link accepted arrives once, in order
// and whole, atomics are done once, handlers run once and in order, and nothing is read from memory
// that is its owner's again.
func TestLinkSurvives(t *testing.T) {
	t.Run("in clear", func(t *testing.T) {
		linkSurvives(t, nil, func(rt *rapid.T, checked bool) []faults { return drawFaults(rt, checked, false) })
	})
	t.Run("encrypted", func(t *testing.T) {
		by := newSecrets(t)
		by.limit = 500 * time.Millisecond
		linkSurvives(t, by, func(rt *rapid.T, checked bool) []faults { return drawFaults(rt, checked, true) })
	})
}

// linkSurvives says how many frames were found damaged, or in a place that was not theirs.
func linkSurvives(t *testing.T, by *secrets, draw func(rt *rapid.T, checked bool) []faults) (damaged uint64) {
	const size, given = 384 << 10, 0xee
	mem := memory(t, size)
	losses, again := uint64(0), uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		clear(mem)
		var mu sync.Mutex
		var words []uint32
		note := func(_ int, w uint32, _ []byte) { mu.Lock(); words = append(words, w); mu.Unlock() }
		checked := rapid.Bool().Draw(rt, "checked")
		terms := Terms{Checked: checked}
		terms.SilenceLimit = 300 * time.Millisecond // that the last bytes are lost, or that a record is longer than it was, nothing else tells
		b := bridgedBy(t, rt, by, terms, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true, Notify: note}}, draw(rt, checked)...)
		defer b.close()
		b.out.Describe(shmlayout.LinkPeer{}) // or its counts could not be read
		b.padSoon(rapid.IntRange(1, 20).Draw(rt, "short frames before a pad"))
		m := &model{rt: rt, o: b.out, want: make([]byte, size)}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			m.step(ctx)
		}
		m.finish(ctx)
		for ran := 0; ran < len(m.words) && ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
			mu.Lock()
			ran = len(words)
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(words, m.words) {
			rt.Fatalf("the handler ran for %v, want %v", words, m.words)
		}
		b.in.rmu.Lock()
		got := bytes.Clone(mem)
		b.in.rmu.Unlock()
		for i := range got {
			if got[i] != m.want[i] && i < calm {
				rt.Fatalf("byte %d is %#x, want %#x", i, got[i], m.want[i])
			}
			if got[i] == given {
				rt.Fatalf("byte %d is of memory that was given back", i)
			}
		}
		n, _ := b.out.ConnStats()
		links, _ := counts(t, b.a)
		for _, l := range links {
			again += l.Counts[shmlayout.ResentBytes]
		}
		losses += n
		damaged += b.out.ChecksumErrors() + b.in.ChecksumErrors()
	})
	if losses == 0 {
		t.Error("no connection was lost")
	}
	t.Logf("%d connections were lost, %d frames damaged or not in their place, %d bytes of payload sent again", losses, damaged, again)
	return damaged
}

// drawFaults are those of the first connections; the ones after them have none.
func drawFaults(rt *rapid.T, checked, encrypted bool) []faults {
	kinds := []simnet.Kind{simnet.Cut, simnet.Reset, simnet.Stall, simnet.Trunc}
	if checked || encrypted {
		kinds = append(kinds, simnet.Flip, simnet.Flip, simnet.Lose, simnet.Repeat, simnet.Swap)
	}
	way := rapid.Custom(func(rt *rapid.T) (f []simnet.Fault) {
		at := int64(0)
		if encrypted && rapid.IntRange(0, 3).Draw(rt, "behind the handshake") > 0 {
			at = handshake
		}
		for len(f) < rapid.IntRange(0, 2).Draw(rt, "faults") {
			at += rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 400<<10)).Draw(rt, "at")
			f = append(f, simnet.Fault{At: at, Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), Bit: uint8(rapid.IntRange(0, 7).Draw(rt, "bit")), For: time.Millisecond, Len: rapid.Int64Range(1, 3000).Draw(rt, "length")})
		}
		return f
	})
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) faults {
		f := faults{there: way.Draw(rt, "there"), back: way.Draw(rt, "back")}
		switch rapid.IntRange(0, 9).Draw(rt, "attempt") {
		case 0:
			f.refused = true
		case 1:
			f.unanswered = true
		}
		return f
	}), 0, 6).Draw(rt, "connections")
}

// Where messages are sent: [0, calm) has what was sent and nothing else; after it are
// messages that their senders gave up, and a word for atomics.
const (
	calm    = 256 << 10
	counter = 380 << 10
)

// model is the importer's side, and what memory should be.
type model struct {
	rt    *rapid.T
	o     *Requester
	want  []byte
	words []uint32
	count uint64
	value byte
	reqs  []Request
}

func (m *model) message(max int) (at int, src []byte) {
	n := 4 * rapid.OneOf(rapid.IntRange(1, 130), rapid.IntRange(1, max/4)).Draw(m.rt, "words")
	at = 4 * rapid.IntRange(0, (calm-n)/4).Draw(m.rt, "at")
	m.value = m.value%200 + 1
	src = bytes.Repeat([]byte{m.value}, n)
	copy(m.want[at:], src)
	return at, src
}

func (m *model) check(what string, err error) {
	if err != nil {
		m.rt.Fatalf("%s: %v; %s", what, err, m.o.state())
	}
}

func (m *model) step(ctx context.Context) {
	rt := m.rt
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0, 1: // short
		at, src := m.message(2048)
		_, err := m.o.Send(ctx, Message{Handle: 1, Off: uint64(at), Src: src})
		m.check("send", err)
		for i := range src { // it is the caller's again
			src[i] = 0xee
		}
	case 2: // of any size, in pieces
		at, src := m.message(calm)
		k := rapid.IntRange(0, len(src)/4).Draw(rt, "piece") * 4
		_, err := m.o.Send(ctx, Message{Handle: 1, Off: uint64(at), Src: src[:k], More: [][]byte{src[k:k], src[k:]}})
		m.check("send", err)
		for i := range src {
			src[i] = 0xee
		}
	case 3, 4:
		at, src := m.message(calm)
		r, err := m.o.SendAsync(ctx, Message{Handle: 1, Off: uint64(at), Src: src})
		m.check("asynchronous send", err)
		m.reqs = append(m.reqs, r)
	case 5: // with a notification
		at, src := m.message(4096)
		_, err := m.o.Send(ctx, Message{Handle: 1, Off: uint64(at), Src: src, Notify: true})
		m.check("notify", err)
		m.words = append(m.words, lastWord(src))
	case 6:
		n := 4 * rapid.OneOf(rapid.IntRange(1, 130), rapid.IntRange(1, calm/4)).Draw(rt, "words")
		at := 4 * rapid.IntRange(0, (calm-n)/4).Draw(rt, "at")
		dst := make([]byte, n)
		m.check("get", m.o.Get(ctx, Read{Handle: 1, Off: uint64(at), Dst: dst}))
		if !bytes.Equal(dst, m.want[at:at+n]) {
			rt.Fatalf("a get of %d bytes at %d has others", n, at)
		}
	case 7:
		old, err := m.o.Atomic(ctx, AtomicOp{Handle: 1, Off: counter, Wide: true, Op: wire.FetchAdd, A: 3})
		m.check("atomic", err)
		if old != m.count {
			rt.Fatalf("the counter was %d, want %d", old, m.count)
		}
		m.count += 3
	case 8: // given up
		n := 4 * rapid.IntRange(1, (counter-calm)/4).Draw(rt, "words")
		src := bytes.Repeat([]byte{0xdd}, n)
		short, stop := context.WithTimeout(ctx, time.Duration(rapid.IntRange(0, 300).Draw(rt, "µs"))*time.Microsecond)
		_, err := m.o.Send(short, Message{Handle: 1, Off: calm, Src: src})
		stop()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			m.check("send", err)
		}
		for i := range src {
			src[i] = 0xee
		}
	case 9:
		m.check("fence", m.o.WaitApplied(ctx, nil))
	}
}

func (m *model) finish(ctx context.Context) {
	for _, r := range m.reqs {
		done, err := r.Wait(ctx)
		if !done || err != nil {
			m.rt.Fatalf("request %d: %v, %v", r.seq, done, err)
		}
	}
	m.check("fence", m.o.WaitApplied(ctx, nil))
}

// Wherever the connection ends, in a header, in a payload, between two messages.
func TestConnLostAtEveryByte(t *testing.T) {
	for at := int64(0); at < 1300; at += 37 {
		for _, kind := range []simnet.Kind{simnet.Cut, simnet.Reset} {
			mem := memory(t, 4096)
			b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, faults{there: []simnet.Fault{{At: at, Kind: kind}}})
			for i := range 8 {
				if _, err := b.out.Send(t.Context(), Message{Handle: 1, Off: uint64(100 * i), Src: bytes.Repeat([]byte{byte(i + 1)}, 100)}); err != nil {
					t.Fatal(at, kind, err)
				}
			}
			if err := b.out.WaitApplied(t.Context(), nil); err != nil {
				t.Fatal(at, kind, err)
			}
			for i := range 800 {
				if mem[i] != byte(i/100+1) {
					t.Fatalf("%v at %d: byte %d is %d", kind, at, i, mem[i])
				}
			}
			if n, resumed := b.out.ConnStats(); n != 1 || resumed != 1 {
				t.Errorf("%v at %d: %d connections were lost, %d resumed", kind, at, n, resumed)
			}
			b.close()
		}
	}
}

// A link that cannot be resumed fails when its limit is reached, and says so.
func TestReconnectLimit(t *testing.T) {
	mem := memory(t, 64)
	never := func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
		return -1, nil, wire.Answer{}, errors.New("no way there")
	}
	limit := 50 * time.Millisecond
	b := bridged(t, t, Terms{ReconnectLimit: limit, Redial: never}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, faults{there: []simnet.Fault{{At: 0, Kind: simnet.Cut}}})
	defer b.close()
	err := b.out.Get(t.Context(), Read{Handle: 1, Dst: make([]byte, 8)})
	if !errors.Is(err, ErrGone) || !strings.Contains(fmt.Sprint(err), "not resumed within 50ms: no way there") {
		t.Errorf("the importer: %v", err)
	}
	if err := <-b.lost; !errors.Is(err, ErrGone) || !strings.Contains(fmt.Sprint(err), "has not resumed the link within 50ms") {
		t.Errorf("the exporter: %v", err)
	}
}

// What was kept is given back when nothing more is sent, though the exporter has
// acknowledged nothing by itself.
func TestIdleLinkRetainsNothing(t *testing.T) {
	mem := memory(t, 64)
	b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true}})
	defer b.close()
	for range 10 {
		if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
	if b.a.segmentPool.Allocated.Load() == 0 {
		t.Error("nothing is kept of messages that are not acknowledged")
	}
	for end := time.Now().Add(10 * time.Second); b.a.segmentPool.Allocated.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are kept", b.a.segmentPool.Allocated.Load())
		}
	}
}

// Senders wait rather than that more is kept than may be.
func TestSendBufferIsBounded(t *testing.T) {
	mem := memory(t, 64<<10)
	b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true}})
	defer b.close()
	for i := range 400 {
		n := 64 << 10 >> (i % 10)
		if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: bytes.Repeat([]byte{byte(i)}, n)}); err != nil {
			t.Fatal(err)
		}
		if kept := b.a.segmentPool.Allocated.Load(); kept > sendbuf.MaxPerLink {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
}

// state is what a test says of a link that has not gone on.
func (rq *Requester) state() string {
	rq.rmu.Lock()
	defer rq.rmu.Unlock()
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	losses, resumptions := rq.ConnStats()
	return fmt.Sprintf("messages: %d begun, %d in frames now and %d ever, %d acknowledged, %d kept; %d gets; again %d, queued %d, under way %d bytes of %v, middle %v, torn %v, descriptor %d, lost %d and resumed %d times, why %v",
		rq.lastSeq.Load(), rq.writtenSeq.Load(), rq.maxWrittenSeq, rq.ackedSeq.Load(), rq.unacked.uncopied.len(), rq.fetches.count.Load(), len(rq.retransmits), rq.queuedOps.Load(), rq.tx.unwritten(), rq.tx.parts[:rq.tx.partCount], rq.midMessage, rq.State(), rq.fd, losses, resumptions, rq.err())
}

// An exporter that says on resuming what cannot be ends the link for its importer.
func TestHostileAnswer(t *testing.T) {
	for name, lie := range map[string]func(a *wire.Answer){
		"more than was sent":             func(a *wire.Answer) { a.Applied = 9 },
		"less than was acknowledged":     func(a *wire.Answer) { a.Applied = 0 },
		"a part of what is not there":    func(a *wire.Answer) { a.Partial = 4 },
		"more of a message than it has":  func(a *wire.Answer) { a.Applied, a.Partial = 1, 4096 },
		"a part of a word of a message":  func(a *wire.Answer) { a.Applied, a.Partial = 1, 2 },
		"a part of a message in 1 frame": func(a *wire.Answer) { a.Applied, a.Partial = 1, 1<<64-4 },
	} {
		t.Run(name, func(t *testing.T) {
			mem := memory(t, 256<<10)
			var b *bridge
			lost := make(chan error, 1)
			dialled := false
			b = bridged(t, t, Terms{Redial: func(ctx context.Context, n, replied uint64, notices uint32) (int, Cipher, wire.Answer, error) {
				if dialled {
					return -1, nil, wire.Answer{}, errors.New("no exporter is there")
				}
				dialled = true
				fd, _, a, err := b.redial(ctx, n, replied, notices)
				lie(&a)
				return fd, nil, a, err
			}}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}})
			defer b.close()
			if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 64)}); err != nil {
				t.Fatal(err)
			}
			if err := b.out.WaitApplied(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			c := b.first()
			c.Part() // and so nothing of the next one arrives before the connection ends
			if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 64)}); err != nil {
				t.Fatal(err)
			}
			c.Reset()
			go func() { lost <- b.out.WaitApplied(t.Context(), nil) }()
			select {
			case err := <-lost:
				if !isProtocol(err) {
					t.Errorf("the link goes on, or ended by %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("nothing ends: %s", b.out.state())
			}
		})
	}
}

// An importer that dials a link that has just ended is told so: a connection that closes without an
// answer only makes it dial again.
func TestResumeOfAnEndedLink(t *testing.T) {
	b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: memory(t, 64), Write: true}})
	defer b.close()
	for name, replied := range map[string]uint64{"it ends by what the importer claims": 99, "it has ended": 0} {
		if name == "it has ended" {
			b.in.fail(ErrClosed)
		}
		e, err := b.dial(faults{})
		if err != nil {
			t.Fatal(err)
		}
		var told error
		err = b.in.Resume(e.far, e.farCipher, replied, 0, func(ended error, _, _ uint64, _ uint32) error {
			told = ended
			return nil
		})
		if err == nil || told == nil {
			t.Errorf("%s: the importer is told %v, and the exporter %v", name, told, err)
		}
		_ = unix.Close(e.near)
	}
}

// The memory for copies is shared by all links. Where it is used up, or a link's part of it,
// senders wait until their messages have arrived, and with them what they may keep.
func TestSendBufferPoolIsShared(t *testing.T) {
	mem := memory(t, 64<<10)
	b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true}})
	defer b.close()
	b.a.segmentPool.Allocated.Store(sendbuf.MaxPerPool) // by others
	for i := range 100 {
		if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: bytes.Repeat([]byte{byte(i)}, 4096)}); err != nil {
			t.Fatal(err)
		}
		if n := b.a.segmentPool.Allocated.Load(); n != sendbuf.MaxPerPool {
			t.Fatalf("%d bytes are kept", n)
		}
		b.in.rmu.Lock()
		got := mem[4095]
		b.in.rmu.Unlock()
		if got != byte(i) {
			t.Fatalf("a send returned whose message has not arrived, and of which there is no copy: %d, want %d", got, i)
		}
	}
	b.a.segmentPool.Allocated.Add(-sendbuf.MaxPerPool)
}

// Where nothing is acknowledged, nothing more is accepted than may be kept, whichever way it is
// sent.
func TestBackPressure(t *testing.T) {
	mem := memory(t, 64<<10)
	b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true}})
	defer b.close()
	b.first().Part()
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	kept, src := 0, make([]byte, 16<<10)
	for ; ; kept++ {
		if _, err := b.out.Send(ctx, Message{Handle: 1, Src: src}); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnknown) {
				t.Errorf("the send that waits: %v", err)
			}
			break
		}
	}
	if n := b.a.segmentPool.Allocated.Load(); kept*len(src) > sendbuf.MaxPerLink || n > sendbuf.MaxPerLink || kept == 0 {
		t.Errorf("%d messages were accepted, %d bytes are kept", kept, n)
	}
	ctx, stop = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	for n := 0; ; n++ {
		if _, err := b.out.SendAsync(ctx, Message{Handle: 1, Src: src[:8]}); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the asynchronous send that waits: %v", err)
			}
			break
		}
		if n > maxQueue+maxUncopied {
			t.Fatalf("%d asynchronous messages were accepted", n)
		}
	}
	ctx, stop = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := b.out.Send(ctx, Message{Handle: 1, Src: src[:8]}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a send that comes before those that wait: %v", err)
	}
	// All of them go on when the link does.
	b.first().Reset()
	if err := b.out.WaitApplied(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// What a link has lost and made good is counted.
func TestResumptionsAreCounted(t *testing.T) {
	mem := memory(t, 4096)
	// The fourth message is cut in its header.
	b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, faults{there: []simnet.Fault{{At: 3*(wire.HeaderSize+96) + 8, Kind: simnet.Reset}}})
	defer b.close()
	b.out.Describe(shmlayout.LinkPeer{Node: "far"})
	b.in.Describe(shmlayout.LinkPeer{Node: "near"})
	const messages = 8
	for range messages {
		if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.out.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Engine{b.a, b.b} {
		links, _ := counts(t, e)
		if len(links) != 1 {
			t.Fatal(len(links))
		}
		c := links[0].Counts
		if c[shmlayout.Resumes] != 1 || c[shmlayout.Messages] != messages {
			t.Errorf("%d resumptions, %d messages", c[shmlayout.Resumes], c[shmlayout.Messages])
		}
		if n, m := c[shmlayout.Resent], c[shmlayout.Duplicates]; e == b.a && (n < 1 || n+m > messages) || e == b.b && n+m != 0 {
			t.Errorf("%d messages were sent again, %d need not be", n, m)
		}
		// Of 100 bytes the last word is in the header.
		if n, m := c[shmlayout.Resent], c[shmlayout.ResentBytes]; m != 96*n {
			t.Errorf("%d messages with %d bytes were sent again", n, m)
		}
	}
}
